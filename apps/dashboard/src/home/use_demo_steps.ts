import { useBoard, useConversation, useKhala } from "@khala/client/react";
import { useEffect, useMemo, useState } from "react";
import { readArtifact, readDeadLetter } from "../blackboard/board_types.ts";
import { useFetch } from "../data/fetch.ts";
import { useNow } from "../ui/format/ago.tsx";
import { type DemoState, type DemoStep, demoSteps, type OpenLetter } from "./demo_steps.ts";

export interface DemoProgress {
  readonly steps: readonly DemoStep[];
  /** The response of the assistant so far. */
  readonly answer: string;
  readonly traceId: string | undefined;
  readonly letters: readonly OpenLetter[];
  /** The run ended, and published nothing. */
  readonly publishedNothing: boolean;
}

type Board = ReturnType<typeof useKhala>["board"];
type View = ReturnType<typeof useConversation>;

const EVERY_MS = 1_500;

/** Follows a message through the planes: its conversation, the correlation of its run, and their trace. */
export function useDemoSteps(convId: string, runId: string | undefined): DemoProgress {
  const { board, ops } = useKhala();
  const { messages, run, outcome } = useConversation(convId);
  const correlation = useBoard(runId).correlation.data;
  const status = correlation?.status;
  const isSettled = status === "done" || status === "failed" || status === "cancelled";
  const ms = useRunTime(run !== null, outcome?.run_id === runId ? outcome?.run_id : undefined);

  const key = (name: string) => (runId === undefined ? undefined : [name, runId]);
  const everyMs = isSettled ? undefined : EVERY_MS;
  const artifacts = useFetch(
    key("demo-artifacts"),
    async () =>
      (await board.artifacts({ correlation_id: runId!, limit: 100 })).artifacts?.map(readArtifact) ?? [],
    everyMs,
  );
  const trace = useFetch(
    key("demo-trace"),
    async () => {
      const { traces = [] } = await ops.traces({ correlation_id: runId!, limit: 1 });
      const id = traces[0]?.trace_id;
      return id === undefined ? {} : await ops.trace(id);
    },
    everyMs,
  );
  const dead = Number(correlation?.dead ?? 0);
  const letters = useFetch(
    runId !== undefined && dead > 0 ? ["demo-letters", runId, dead] : undefined,
    () => openLetters(board, runId!),
    everyMs,
  );
  // The correlation is live: when it changes there is something new to fetch.
  const updatedAt = correlation?.updated_at;
  const { refetch: refetchArtifacts } = artifacts;
  const { refetch: refetchTrace } = trace;
  useEffect(() => {
    if (updatedAt === undefined) return;
    refetchArtifacts();
    refetchTrace();
  }, [updatedAt, refetchArtifacts, refetchTrace]);

  return useMemo(() => {
    const spans = trace.data?.spans ?? [];
    const open = letters.data ?? [];
    return {
      steps: demoSteps({
        isSent: runId !== undefined,
        run: runState(runId, run, outcome, ms),
        artifacts: artifacts.data ?? [],
        failedReviews: spans.filter(
          ({ attributes, status: result }) =>
            attributes?.["khala.agent"] === "reviewer" && "khala.attempt" in attributes && result === "error",
        ).length,
        isSettled,
        letters: open,
      }),
      answer: messages
        .filter(({ role, run_id }) => role === "assistant" && run_id === runId)
        .map(({ parts = [] }) => parts.map(({ text = "" }) => text).join(""))
        .join("\n"),
      traceId: trace.data?.trace_id,
      letters: open,
      publishedNothing:
        outcome?.run_id === runId && correlation === undefined && artifacts.data?.length === 0,
    };
  }, [runId, run, outcome, ms, artifacts.data, trace.data, letters.data, messages, correlation, isSettled]);
}

/** The dead letters of a correlation that were not replayed, of all agents. */
async function openLetters(board: Board, correlation_id: string): Promise<readonly OpenLetter[]> {
  const { agents = [] } = await board.agents();
  const found = await Promise.all(
    agents.map(async ({ name = "" }) => {
      const { dead_letters = [] } = await board.deadLetters(name, { correlation_id, limit: 10 });
      return dead_letters
        .map(readDeadLetter)
        .filter(({ replay_id }) => replay_id === "")
        .map(({ id, failure }) => ({ id, agent: name, message: failure.message }));
    }),
  );
  return found.flat();
}

function runState(
  runId: string | undefined,
  run: View["run"],
  outcome: View["outcome"],
  ms: number | undefined,
): DemoState["run"] {
  const time = ms === undefined ? {} : { ms };
  if (run !== null && run.run_id === runId) return { status: "running", ...time };
  if (outcome !== undefined && outcome.run_id === runId) return { status: outcome.status, ...time };
  // After a reload the outcome is not known, only that nothing runs.
  return run === null && runId !== undefined ? { status: "finished" } : undefined;
}

/** The duration of the run, as far as this page saw it. */
function useRunTime(isRunning: boolean, ended: string | undefined): number | undefined {
  const [from, setFrom] = useState<number>();
  const [to, setTo] = useState<number>();
  const now = useNow();
  useEffect(() => {
    if (!isRunning) return;
    setFrom(Date.now());
    setTo(undefined);
  }, [isRunning]);
  useEffect(() => {
    if (ended !== undefined) setTo(Date.now());
  }, [ended]);
  return from === undefined ? undefined : Math.max(0, (to ?? now) - from);
}
