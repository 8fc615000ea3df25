import { durationText } from "../parts/numbers.ts";
import type { State } from "../parts/state_badge.tsx";
import { homeWords as words } from "../strings/home.ts";

/** A step on the way of a message. `idle`: its turn has not come. */
export interface Step {
  readonly id: "message" | "conversation" | "draft" | "reviewer" | "article";
  readonly label: string;
  readonly note: string;
  readonly state: State | "idle";
  /** The artifact that it came to. */
  readonly artifactId?: string;
  /** What its agent gave up on, and a person can replay. */
  readonly letter?: ParkedLetter;
}

/** A dead letter that nobody has replayed. */
export interface ParkedLetter {
  readonly id: string;
  readonly agent: string;
  readonly message: string;
}

/** What is known of a message that was sent to the demo assistant. */
export interface Known {
  readonly isSent: boolean;
  /** Of the conversation's run; undefined while nothing was heard of it. */
  readonly run:
    | { readonly status: "running" | "finished" | "failed" | "stopped"; readonly ms?: number }
    | undefined;
  readonly artifacts: readonly { readonly id: string; readonly type: string; readonly version: number }[];
  /** Attempts of the reviewer that failed. */
  readonly failedReviews: number;
  /** Of the correlation: nothing of it is open any more. */
  readonly isSettled: boolean;
  readonly letters: readonly ParkedLetter[];
}

/** Where the message is: message → conversation → Draft → reviewer → Article. */
export function journey(known: Known): readonly Step[] {
  const { isSent, run, artifacts, failedReviews, isSettled, letters } = known;
  const { step, note } = words;
  const of = (type: string) => artifacts.find((artifact) => artifact.type === type);
  const [topic, draft, review, article] = ["Topic", "Draft", "Review", "Article"].map(of);
  const idle = { state: "idle", note: note.next } as const;
  const [unwritten, unread, unpublished] = ["writer", "reviewer", "publisher"].map((agent) =>
    letters.find((letter) => letter.agent === agent),
  );
  return [
    { id: "message", label: step.message, ...(isSent ? done(note.sent) : doing(note.sending)) },
    { id: "conversation", label: step.conversation, ...runStep(isSent, run) },
    {
      id: "draft",
      label: step.draft,
      ...(draft
        ? { ...done(note.version(draft.version)), artifactId: draft.id }
        : unwritten
          ? parked(unwritten)
          : !topic
            ? idle
            : isSettled
              ? failed(note.ended)
              : doing(note.writing)),
    },
    {
      id: "reviewer",
      label: step.reviewer,
      ...(review
        ? { ...done(failedReviews > 0 ? note.goodAfter(failedReviews) : note.good), artifactId: review.id }
        : unread
          ? parked(unread)
          : !draft
            ? idle
            : isSettled
              ? failed(note.ended)
              : failedReviews > 0
                ? { state: "waiting" as const, note: note.retry(failedReviews) }
                : doing(note.reviewing)),
    },
    {
      id: "article",
      label: step.article,
      ...(article
        ? { ...done(note.published), artifactId: article.id }
        : unpublished
          ? parked(unpublished)
          : unwritten || unread
            ? idle
            : isSettled
              ? failed(note.nothingPublished)
              : review
                ? doing(note.publishing)
                : idle),
    },
  ];
}

function runStep(isSent: boolean, run: Known["run"]): Pick<Step, "state" | "note"> {
  const { note } = words;
  const isRunning = run?.status === "running";
  const ms = run?.ms;
  const length = ms === undefined ? undefined : isRunning ? `${Math.floor(ms / 1000)} s` : durationText(ms);
  if (!isSent) return { state: "idle", note: note.next };
  if (!run) return doing(note.starting);
  if (isRunning) return doing(length === undefined ? note.starting : note.running(length));
  if (run.status === "failed") return failed(note.runFailed);
  if (run.status === "stopped") return { state: "waiting", note: note.runStopped };
  return done(length === undefined ? note.sent : note.answered(length));
}

const done = (note: string) => ({ state: "ok", note }) as const;
const doing = (note: string) => ({ state: "working", note }) as const;
const failed = (note: string) => ({ state: "failed", note }) as const;
/** Only a person can go on from here: that is not the end. */
const parked = (letter: ParkedLetter) =>
  ({ state: "waiting", note: words.note.waitsForPerson, letter }) as const;
