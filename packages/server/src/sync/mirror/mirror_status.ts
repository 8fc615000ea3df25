import { KhalaError } from "@khala/contracts";
import type { ParityJson, TopicParityJson } from "@khala/contracts/ops/v1";
import type { Database } from "../../database/database.ts";
import { sleep } from "../../kit/clock.ts";
import type { Context } from "../../kit/context.ts";
import type { Models } from "../model.ts";
import type { Mirror, MirrorReader } from "./mirror.ts";
import { readPosition } from "./mirror_source.ts";
import { compareWithMirror } from "./parity.ts";

/** The state of the mirror compared with Postgres. */
export interface MirrorStatus {
  /** The lag of each topic, and the result of the last comparison on this server. */
  state(): Promise<ParityJson>;
  /** Compares every document. Answers when done, or earlier if that takes long: `at` is the time of the last result. */
  compare(): Promise<ParityJson>;
  stop(): Promise<void>;
}

const ANSWER_MS = 8_000;

type Compared = Pick<TopicParityJson, "checked" | "differences" | "at">;

/** Opens the status of a server's mirror, if it has one. */
export function openMirrorStatus(
  database: Database,
  { clock, log }: Pick<Context, "clock" | "log">,
  models: Models,
  sink: Mirror | undefined,
): MirrorStatus {
  const stopping = new AbortController();
  let compared: ReadonlyMap<string, Compared> = new Map();
  let comparing: Promise<void> | undefined;

  async function state(): Promise<ParityJson> {
    if (!sink) return { sink: "none", topics: [] };
    const topics: TopicParityJson[] = [];
    for (const { topic } of models.all) {
      const { head, floor, watermark } = await readPosition(database, topic, sink.name);
      const lag = Number(head - (watermark ?? floor));
      topics.push({ topic, state: stateOf(watermark, lag), lag, ...compared.get(topic) });
    }
    return { sink: sink.name, topics };
  }

  async function compareAll(reader: MirrorReader): Promise<void> {
    const report = await compareWithMirror(database, {
      reader,
      models: models.all,
      signal: stopping.signal,
    });
    const at = new Date(clock.now()).toISOString();
    compared = new Map(
      report.topics.map(({ topic, documents, differing, missing, extra }) => [
        topic,
        { checked: documents, differences: differing.count + missing.count + extra.count, at },
      ]),
    );
  }

  return {
    state,
    async compare() {
      if (!sink || !holds(sink)) {
        const message = sink ? `The mirror "${sink.name}" stores nothing.` : "No mirror is configured.";
        throw new KhalaError(
          "invalid_request",
          `${message} Set KHALA_MIRROR to a mirror that can be compared.`,
        );
      }
      comparing ??= compareAll(sink).finally(() => {
        comparing = undefined;
      });
      comparing.catch((error: Error) => log.warn({ err: error.message }, "the mirror was not compared"));
      await Promise.race([comparing, sleep(clock, ANSWER_MS, stopping.signal)]);
      return state();
    },
    async stop() {
      stopping.abort();
      await comparing?.catch(() => {
        // The caller of `compare` gets the error.
      });
    },
  };
}

function holds(sink: Mirror): sink is Mirror & MirrorReader {
  return "held" in sink;
}

function stateOf(watermark: bigint | null, lag: number): string {
  if (watermark === null) return "not following";
  return lag > 0 ? "behind" : "following";
}
