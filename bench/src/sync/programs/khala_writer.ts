import { randomUUID } from "node:crypto";
import { setTimeout } from "node:timers/promises";
import { type Khala, runSummaries, runs } from "@khala/server";
import pg from "pg";
import { pooled } from "../../kit/pooled.ts";
import { serve } from "../../kit/program.ts";
import { docKey, KEYS, ORG, runId, runSummaryText } from "../documents.ts";
import { closedLoop, type Load } from "./closed_loop.ts";
import { openKhala } from "./library.ts";

let khala: Khala | undefined;
let client: pg.Client | undefined;
/** Documents of our org, then as many of another. */
const versions = new Uint32Array(2 * KEYS);
/** Ready-made, as those of the contestants. */
const ready = Array.from({ length: KEYS }, (_, n) => runSummaryText(n, 1_000));
let next = 0;

const methods = {
  /** Opens Khala as a library, with its gateway on a free port. */
  async open({ url }: { url: string }): Promise<void> {
    client = new pg.Client({ connectionString: url });
    await client.connect();
    khala = await openKhala(url);
  },

  /** Writers that each make a document, write it, and wait for its commit. */
  documents(load: Load): Promise<number> {
    const { sink } = khala!.sync;
    return closedLoop(load, () => writeNext(sink));
  },

  /** Writes so many documents as fast as they go, for our org or for another. */
  async write({ documents, foreign }: { documents: number; foreign: boolean }): Promise<void> {
    const { sink } = khala!.sync;
    await pooled(documents, 256, () => writeNext(sink, foreign));
  },

  /** Writers that each append an event; the time runs until the document of the last one is in the journal. */
  async events(load: Load): Promise<number> {
    const { authority } = khala!;
    const before = await journalHead();
    let appended = 0;
    const started = performance.now();
    await closedLoop(load, async () => {
      const n = next++;
      await authority.append({
        stream: runs,
        streamId: runId(n % KEYS),
        events: [
          n < KEYS
            ? {
                event_id: randomUUID(),
                type: "run.started",
                data: { title: `Review pull request ${n} and answer` },
              }
            : {
                event_id: randomUUID(),
                type: "run.step",
                data: { name: `read src/module_${n % 40}.ts`, status: "done" },
              },
        ],
        org: ORG,
        actor: `user_${n % 97}`,
      });
      appended++;
    });
    while ((await journalHead()) < before + appended) await setTimeout(1);
    return appended / ((performance.now() - started) / 1_000);
  },
};

async function writeNext(sink: Khala["sync"]["sink"], foreign = false): Promise<void> {
  const n = (next++ % KEYS) + (foreign ? KEYS : 0);
  const version = ++versions[n]!;
  const written = await sink.write(runSummaries, {
    docKey: docKey(n),
    docVersion: BigInt(version),
    op: "upsert",
    payload: ready[n % KEYS]!,
    org: foreign ? `${ORG}_2` : ORG,
    audience: null,
  });
  if (written.watermark === null) throw new Error(`Version ${version} of ${docKey(n)} was refused.`);
}

async function journalHead(): Promise<number> {
  const { rows } = await client!.query({
    name: "head",
    text: "SELECT next_watermark FROM runtime.sync_topic_sequences WHERE topic = $1",
    values: [runSummaries.topic],
  });
  return Number(rows[0].next_watermark);
}

/** What this program can be asked. */
export type KhalaWriter = typeof methods;

serve(methods, async () => {
  await client?.end();
  await khala?.stop();
});
