import { setTimeout } from "node:timers/promises";
import { type Khala, runSummaries } from "@khala/server";
import pg from "pg";
import { pooled } from "../../kit/pooled.ts";
import { serve } from "../../kit/program.ts";
import { ORG } from "../documents.ts";
import { closedLoop, type Load } from "./closed_loop.ts";
import { type KhalaPublisher, publisherOf } from "./khala_publisher.ts";
import { openKhala } from "./library.ts";

let khala: Khala | undefined;
let client: pg.Client | undefined;
let publish: KhalaPublisher["publish"];
let publishForeign: KhalaPublisher["publish"];
let next = 0;

const methods = {
  /** Opens Khala as a library, with its gateway on a free port. */
  async open({ url }: { url: string }): Promise<void> {
    client = new pg.Client({ connectionString: url });
    await client.connect();
    khala = await openKhala(url);
    publish = publisherOf(khala);
    publishForeign = publisherOf(khala, `${ORG}_2`);
  },

  /** Appends so many events as fast as they go, for our org or for another; all are in the journal then. */
  async write({ documents, foreign }: { documents: number; foreign: boolean }): Promise<void> {
    const before = await journalHead();
    await pooled(documents, 256, () => (foreign ? publishForeign : publish)(next++));
    await reached(before + documents);
  },

  /** Writers that each append an event; the time runs until the document of the last one is in the journal. */
  async events(load: Load): Promise<number> {
    const before = await journalHead();
    let appended = 0;
    const started = performance.now();
    await closedLoop(load, async () => {
      await publish(next++);
      appended++;
    });
    await reached(before + appended);
    return appended / ((performance.now() - started) / 1_000);
  },
};

async function reached(head: number): Promise<void> {
  while ((await journalHead()) < head) await setTimeout(1);
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
