import { useBoard, useConversation, useKhala } from "@khala/client/react";
import { useEffect, useMemo, useState } from "react";
import { readDeadLetter } from "../blackboard/board_types.ts";
import { useAsk } from "../parts/asking.ts";
import { useNow } from "../parts/clock.ts";
import { journey, type Known, type ParkedLetter, type Step } from "./journey.ts";

export interface Followed {
  readonly steps: readonly Step[];
  /** What the assistant has said so far. */
  readonly answer: string;
  readonly traceId: string | undefined;
  /** What waits for a person. */
  readonly letters: readonly ParkedLetter[];
  /** The run is over, and nothing came of it on the board. */
  readonly isSilent: boolean;
}

const ASK_MS = 1_500;

/** Follows a message through the planes: the conversation, the correlation that its run began, and their trace. */
export function useJourney(convId: string, runId: string | undefined): Followed {
  const khala = useKhala();
  const { messages, run, outcome } = useConversation(convId);
  const correlation = useBoard(runId).correlation.data;
  const status = correlation?.status;
  const isSettled = status === "done" || status === "failed" || status === "cancelled";
  const ms = useRunTime(run !== null, outcome?.run_id === runId ? outcome?.run_id : undefined);

  const every = isSettled ? {} : { everyMs: ASK_MS };
  const artifacts = useAsk(runId, () => khala.board.artifacts({ correlation_id: runId!, limit: 100 }), every);
  const trace = useAsk(
    runId === undefined ? undefined : `trace ${runId}`,
    async () => {
      const { traces = [] } = await khala.ops.traces({ correlation_id: runId!, limit: 1 });
      const id = traces[0]?.trace_id;
      return id === undefined ? undefined : await khala.ops.trace(id);
    },
    every,
  );
  const dead = Number(correlation?.dead ?? 0);
  const letters = useAsk(
    runId !== undefined && dead > 0 ? `letters ${runId} ${dead}` : undefined,
    () => parkedLetters(khala.board, runId!),
    every,
  );
  // The correlation is live: when it moved there is something new to ask for.
  const moved = correlation?.updated_at;
  const { again: askArtifacts } = artifacts;
  const { again: askTrace } = trace;
  useEffect(() => {
    if (moved === undefined) return;
    askArtifacts();
    askTrace();
  }, [moved, askArtifacts, askTrace]);

  return useMemo(() => {
    const spans = trace.data?.spans ?? [];
    const known: Known = {
      isSent: runId !== undefined,
      run: runState(runId, run, outcome, ms),
      artifacts: (artifacts.data?.artifacts ?? []).map(({ id = "", type = "", version = 1 }) => ({
        id,
        type,
        version: Number(version),
      })),
      failedReviews: spans.filter(
        ({ attributes, status: result }) =>
          attributes?.["khala.agent"] === "reviewer" && "khala.attempt" in attributes && result === "error",
      ).length,
      isSettled,
      letters: letters.data ?? [],
    };
    return {
      steps: journey(known),
      answer: answerOf(messages, runId),
      traceId: trace.data?.trace_id,
      letters: known.letters,
      isSilent:
        outcome?.run_id === runId && correlation === undefined && artifacts.data?.artifacts?.length === 0,
    };
  }, [runId, run, outcome, ms, artifacts.data, trace.data, letters.data, messages, correlation, isSettled]);
}

/** The dead letters of a correlation that nobody has replayed, of every agent. */
async function parkedLetters(board: Board, correlation_id: string): Promise<readonly ParkedLetter[]> {
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

type Board = ReturnType<typeof useKhala>["board"];
type View = ReturnType<typeof useConversation>;

function runState(
  runId: string | undefined,
  run: View["run"],
  outcome: View["outcome"],
  ms: number | undefined,
): Known["run"] {
  const time = ms === undefined ? {} : { ms };
  if (run !== null && run.run_id === runId) return { status: "running", ...time };
  if (outcome !== undefined && outcome.run_id === runId) return { status: outcome.status, ...time };
  // A page that was reloaded did not see the end; that nothing runs is all that it knows.
  return run === null && runId !== undefined ? { status: "finished" } : undefined;
}

/** How long the run takes, as this page saw it. */
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
  if (from === undefined) return undefined;
  return Math.max(0, (to ?? now) - from);
}

function answerOf(messages: View["messages"], runId: string | undefined): string {
  return messages
    .filter(({ role, run_id }) => role === "assistant" && run_id === runId)
    .map(({ parts = [] }) => parts.map(({ text = "" }) => text).join(""))
    .join("\n");
}
