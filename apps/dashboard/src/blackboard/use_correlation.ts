import { useKhala } from "@khala/client/react";
import { type Asked, useAsk } from "../parts/asking.ts";
import { type DeadLetter, readArtifact, readDeadLetter } from "./board_types.ts";
import {
  type CorrelationRow,
  correlationRows,
  type TimelineDeadLetter,
  type TimelineSpan,
} from "./correlation_timeline.ts";

const EVERY_MS = 2_000;
const ARTIFACTS = 500;
const TRACES = 10;

export interface CorrelationStory {
  readonly rows: readonly CorrelationRow[];
  readonly letters: readonly DeadLetter[];
  readonly traceId: string | undefined;
  /** Whether this server keeps traces; without them only artifacts and dead letters are known. */
  readonly hasTraces: boolean;
}

/** What came of a correlation, from its artifacts, its traces and the dead letters of the agents. */
export function useCorrelation(id: string, agents: readonly string[]): Asked<CorrelationStory> {
  const { board, ops } = useKhala();
  return useAsk(
    `correlation ${id}`,
    async () => {
      const [{ artifacts = [] }, spans, letters] = await Promise.all([
        board.artifacts({ correlation_id: id, limit: ARTIFACTS }),
        spansOf(id),
        Promise.all(agents.map((agent) => lettersOf(agent, id))),
      ]);
      const all = letters.flat();
      return {
        rows: correlationRows(artifacts.map(readArtifact), spans.spans, all.map(lineOf)),
        letters: all,
        traceId: spans.traceId,
        hasTraces: spans.hasTraces,
      };
    },
    { everyMs: EVERY_MS },
  );

  async function lettersOf(agent: string, correlation_id: string): Promise<readonly DeadLetter[]> {
    const { dead_letters = [] } = await board.deadLetters(agent, { correlation_id, limit: 50 });
    return dead_letters.map(readDeadLetter);
  }

  /** The spans of all its traces; none where the server keeps none, or this token may not see them. */
  async function spansOf(correlation_id: string) {
    try {
      const { traces = [] } = await ops.traces({ correlation_id, limit: TRACES });
      const whole = await Promise.all(traces.map(({ trace_id = "" }) => ops.trace(trace_id)));
      const spans = whole.flatMap((trace) => trace.spans ?? []).map(readSpan);
      const ofThis = spans.filter(({ attributes }) => attributes.correlation_id === correlation_id);
      return { spans: ofThis, traceId: traces[0]?.trace_id, hasTraces: true };
    } catch (error) {
      const code = Object(error).code as unknown;
      if (code !== "not_found" && code !== "missing_scope") throw error;
      return { spans: [], traceId: undefined, hasTraces: false };
    }
  }
}

function readSpan(wire: {
  readonly span_id?: string | undefined;
  readonly started_at?: string | undefined;
  readonly duration_ms?: number | string | undefined;
  readonly attributes?: Readonly<Record<string, unknown>> | undefined;
  readonly status?: string | undefined;
  readonly message?: string | undefined;
}): TimelineSpan {
  return {
    span_id: wire.span_id ?? "",
    started_at: wire.started_at ?? "",
    duration_ms: Number(wire.duration_ms ?? 0),
    attributes: wire.attributes ?? {},
    status: wire.status ?? "ok",
    message: wire.message,
  };
}

function lineOf({ id, agent, failed_at, attempts, failure, task }: DeadLetter): TimelineDeadLetter {
  return { id, agent, failed_at, attempts, message: failure.message, artifact_id: task?.artifacts[0]?.id };
}
