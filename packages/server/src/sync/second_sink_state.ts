import type { ParityJson, TopicParityJson } from "@khala/contracts/ops/v1";
import type { Database } from "../database/database.ts";
import type { Models } from "./model.ts";
import { readPlace } from "./second_sink_source.ts";

/** How far a second sink has followed each topic; what it holds is compared by `khala parity`. */
export async function describeSecondSink(
  database: Database,
  models: Models,
  sink: string | undefined,
): Promise<ParityJson> {
  if (sink === undefined) return { sink: "none", topics: [] };
  const topics: TopicParityJson[] = [];
  for (const { topic } of models.all) {
    const { head, floor, watermark } = await readPlace(database, topic, sink);
    const lag = Number(head - (watermark ?? floor));
    topics.push({ topic, state: stateOf(watermark, lag), lag });
  }
  return { sink, topics };
}

function stateOf(watermark: bigint | null, lag: number): string {
  if (watermark === null) return "not following";
  return lag > 0 ? "behind" : "following";
}
