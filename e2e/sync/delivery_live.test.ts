import { type Batch, type Cursor, RawClient, until } from "@khala/test-support/clients/clients";
import { applyUpdates, listAll, watermarkOf } from "@khala/test-support/clients/lists";
import { testDatabase } from "@khala/test-support/postgres/test_database";
import { RUNS, startServer, type TestServer } from "@khala/test-support/servers/servers";
import { describe, expect, test } from "vitest";

const WRITERS = 50;
const WRITES = 4_000;

/** Writes as fast as it can: each writer its own document, version after version. */
async function writeAll(server: TestServer, org: string): Promise<void> {
  const each = WRITES / WRITERS;
  const writer = async (_: unknown, id: number) => {
    for (let version = 1; version <= each; version++) {
      // Now and then a document goes, and comes back with its next version.
      const payload = version % 40 === 39 ? undefined : { id, version };
      await server.write({ key: `run:${org}-${id}`, version, org, ...(payload && { payload }) });
    }
  };
  await Promise.all(Array.from({ length: WRITERS }, writer));
}

interface JournalRow {
  readonly watermark: bigint;
  readonly doc_key: string;
}

/** Every range that a client was told is complete must hold the newest version in it of every document. */
function expectNoGap(journal: readonly JournalRow[], batches: readonly Batch[], start: bigint): void {
  let from = start;
  for (const { updates = [], through } of batches) {
    const newest = new Map<string, bigint>();
    for (const { watermark, doc_key } of journal.slice(Number(from), Number(watermarkOf(through))))
      newest.set(doc_key, watermark);
    const told = new Set(updates.map(({ watermark }) => BigInt(watermark)));
    expect([...newest.values()].filter((watermark) => !told.has(watermark))).toEqual([]);
    expect(updates.every(({ watermark }) => BigInt(watermark) > from)).toBe(true);
    from = watermarkOf(through);
  }
}

describe.each([
  { how: "from memory", settings: {} },
  { how: "from the database", settings: { KHALA_TAIL_BYTES: "0" } },
  {
    how: "in small batches from the database",
    settings: { KHALA_TAIL_BYTES: "0", KHALA_REPLAY_MAX_UPDATES: "25" },
  },
])("replayed $how", ({ settings }) => {
  test("a client that joins during a flood of updates misses nothing and continues from replay to live", async () => {
    // A topic of its own, so that every row of the journal is this org's.
    await using database = await testDatabase();
    await using server = await startServer(database.url, { settings });
    const org = crypto.randomUUID();
    const token = await server.token({ org_id: org });
    const connect = async () => {
      const raw = await RawClient.connect(server.socketUrl, { token });
      await raw.join();
      return raw;
    };
    const writing = writeAll(server, org);
    let written = false;
    void writing.then(() => {
      written = true;
    });

    /** Comes and goes, each time from where it was, until the writers are done; then follows to the end. */
    async function follow(start: "list" | "all") {
      const listed = start === "list" ? await listAll(server, token, RUNS) : undefined;
      const state = listed?.versions ?? new Map<string, string>();
      let cursor: Cursor = listed?.cursor ?? { watermark: "0" };
      const begin = watermarkOf(cursor);
      const batches: Batch[] = [];
      for (let last = false; !last; ) {
        last = written;
        await using raw = await connect();
        await raw.subscribe(RUNS, { [RUNS]: cursor });
        const patience = { on: raw, deadlineMs: 25_000 };
        await until(
          "the end of the replay",
          () => raw.batches.some((batch) => batch.replay_complete),
          patience,
        );
        if (last) {
          const { cursor: end } = await listAll(server, token, RUNS);
          const atEnd = () => watermarkOf(raw.batches.at(-1)?.through) >= BigInt(end.watermark);
          await until("the end", atEnd, patience);
        } else {
          const enough = raw.received.length + 20;
          await until("live batches", () => written || raw.received.length > enough, { deadlineMs: 25_000 });
        }
        const received = raw.batches;
        applyUpdates(state, raw.updates, watermarkOf(cursor));
        batches.push(...received);
        cursor = received.at(-1)!.through;
      }
      return { state, batches, begin };
    }

    const clients = await Promise.all([follow("all"), follow("list"), follow("all"), follow("list")]);
    await writing;
    const { versions } = await listAll(server, token, RUNS);
    expect(versions.size).toBe(WRITERS);
    const journal = await database.database.query<JournalRow>({
      text: "SELECT watermark, doc_key FROM runtime.sync_stream_events WHERE topic = $1 ORDER BY watermark",
      values: [RUNS],
    });
    for (const { state, batches, begin } of clients) {
      expect(state).toEqual(versions);
      expectNoGap(journal, batches, begin);
    }
  });
});
