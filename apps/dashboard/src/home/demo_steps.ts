import type { State } from "../ui/feedback/state_badge.tsx";
import { durationText, plural } from "../ui/format/numbers.ts";

/** A step of the demo. `idle`: it has not begun. */
export interface DemoStep {
  readonly id: "message" | "conversation" | "draft" | "reviewer" | "article";
  readonly label: string;
  readonly note: string;
  readonly state: State | "idle";
  /** The artifact that the step produced. */
  readonly artifactId?: string;
  /** The dead letter that the step ended in. */
  readonly letter?: OpenLetter;
}

/** A dead letter that was not replayed. */
export interface OpenLetter {
  readonly id: string;
  readonly agent: string;
  readonly message: string;
}

/** What is known of a message to the demo assistant. */
export interface DemoState {
  readonly isSent: boolean;
  /** Undefined until the run was seen. */
  readonly run:
    | { readonly status: "running" | "finished" | "failed" | "stopped"; readonly ms?: number }
    | undefined;
  readonly artifacts: readonly { readonly id: string; readonly type: string; readonly version: number }[];
  /** Failed attempts of the reviewer. */
  readonly failedReviews: number;
  /** Nothing of the correlation is open any more. */
  readonly isSettled: boolean;
  readonly letters: readonly OpenLetter[];
}

type Progress = Omit<DemoStep, "id" | "label">;

const IDLE: Progress = { state: "idle", note: "pending" };

/** The steps of the demo: message → conversation → Draft → reviewer → Article. */
export function demoSteps(known: DemoState): readonly DemoStep[] {
  const { isSent, artifacts, failedReviews, isSettled, letters } = known;
  const [topic, draft, review, article] = ["Topic", "Draft", "Review", "Article"].map((type) =>
    artifacts.find((artifact) => artifact.type === type),
  );
  const hasLetter = letters.some(({ agent }) => ["writer", "reviewer", "publisher"].includes(agent));
  /** The step of an agent: its artifact, its dead letter, or where it is. */
  const agentStep = (
    agent: string,
    input: unknown,
    output: { readonly id: string } | undefined,
    doneNote: string,
    working: Progress,
  ): Progress => {
    const letter = letters.find((one) => one.agent === agent);
    if (output) return { state: "ok", note: doneNote, artifactId: output.id };
    // Not the end: it can be replayed.
    if (letter) return { state: "waiting", note: "dead letter", letter };
    if (isSettled && topic && !hasLetter) return { state: "failed", note: "failed" };
    return input ? working : IDLE;
  };
  return [
    {
      id: "message",
      label: "message",
      ...(isSent ? { state: "ok", note: "sent" } : { state: "working", note: "sending" }),
    },
    { id: "conversation", label: "conversation", ...runStep(known) },
    {
      id: "draft",
      label: "Draft",
      ...agentStep("writer", topic, draft, `v${draft?.version}`, { state: "working", note: "writing" }),
    },
    {
      id: "reviewer",
      label: "reviewer",
      ...agentStep(
        "reviewer",
        draft,
        review,
        failedReviews > 0 ? `approved after ${plural(failedReviews, "retry", "retries")}` : "approved",
        failedReviews > 0
          ? { state: "waiting", note: `retry ${failedReviews}` }
          : { state: "working", note: "reviewing" },
      ),
    },
    {
      id: "article",
      label: "Article",
      ...agentStep("publisher", review, article, "published", { state: "working", note: "publishing" }),
    },
  ];
}

function runStep({ isSent, run }: DemoState): Progress {
  if (!isSent) return IDLE;
  if (!run) return { state: "working", note: "starting" };
  const { status, ms } = run;
  if (status === "running")
    return { state: "working", note: ms === undefined ? "starting" : `running ${Math.floor(ms / 1000)} s` };
  if (status === "failed") return { state: "failed", note: "run failed" };
  if (status === "stopped") return { state: "waiting", note: "run stopped" };
  return { state: "ok", note: ms === undefined ? "sent" : `finished in ${durationText(ms)}` };
}
