import { useKhala } from "@khala/client/react";
import { type FetchState, useFetch } from "../../data/fetch.ts";
import { readSpans } from "../../data/spans.ts";
import { readArtifact, readDeadLetter } from "../board_types.ts";
import { type CorrelationRow, correlationRows } from "./correlation_rows.ts";

const EVERY_MS = 2_000;
const MAX_ARTIFACTS = 500;
const MAX_TRACES = 10;
const MAX_LETTERS = 50;

export interface CorrelationData {
  readonly rows: readonly CorrelationRow[];
  readonly traceId: string | undefined;
  /** False when this server keeps no traces: then only artifacts and dead letters are known. */
  readonly hasTraces: boolean;
}

/** Polls a correlation: its artifacts, its traces, and its dead letters of these agents. */
export function useCorrelation(id: string, agents: readonly string[]): FetchState<CorrelationData> {
  const { board, ops } = useKhala();
  return useFetch(
    ["correlation", id],
    async () => {
      const options = { correlation_id: id, limit: MAX_LETTERS };
      const [{ artifacts = [] }, { spans, traceId, hasTraces }, letters] = await Promise.all([
        board.artifacts({ correlation_id: id, limit: MAX_ARTIFACTS }),
        spansOf(id),
        Promise.all(
          agents.map(async (agent) => (await board.deadLetters(agent, options)).dead_letters ?? []),
        ),
      ]);
      const rows = correlationRows(artifacts.map(readArtifact), spans, letters.flat().map(readDeadLetter));
      return { rows, traceId, hasTraces };
    },
    EVERY_MS,
  );

  /** The spans of all its traces; none where the server keeps none, or this token may not see them. */
  async function spansOf(correlation_id: string) {
    try {
      const { traces = [] } = await ops.traces({ correlation_id, limit: MAX_TRACES });
      const all = await Promise.all(traces.map(({ trace_id = "" }) => ops.trace(trace_id)));
      const spans = all
        .flatMap(readSpans)
        .filter(({ attributes }) => attributes.correlation_id === correlation_id);
      return { spans, traceId: traces[0]?.trace_id, hasTraces: true };
    } catch (error) {
      const code = Object(error).code as unknown;
      if (code !== "not_found" && code !== "missing_scope") throw error;
      return { spans: [], traceId: undefined, hasTraces: false };
    }
  }
}
