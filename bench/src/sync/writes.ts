import { watchOtherLoad } from "../kit/proc.ts";
import { startProgram } from "../kit/program.ts";
import { type Bar, range } from "../kit/report.ts";
import { type Spread, spread } from "../kit/stats.ts";
import { type PartRunner, program } from "./bench.ts";
import { startCentrifugo } from "./centrifugo.ts";
import type { CentrifugoWriter } from "./programs/centrifugo_writer.ts";
import type { KhalaWriter } from "./programs/khala_writer.ts";
import type { SqlWriter } from "./programs/sql_writer.ts";

const WRITERS = [1, 16, 256] as const;
/** PostgreSQL here takes 80 connections, and the seed's SQL gets slower with each one that waits for the row lock. */
const SEED_CONNECTIONS = 48;

type Measure = (load: { writers: number; ms: number }) => Promise<number>;

/** (a) Durable document updates per second on one topic. */
export const writes: PartRunner = async ({ postgres, centrifugo, rounds, quick }) => {
  await using stack = new AsyncDisposableStack();
  const otherLoad = watchOtherLoad();
  const ours = stack.use(startProgram<KhalaWriter>(program("khala_writer")));
  const seed = stack.use(startProgram<SqlWriter>(program("sql_writer")));
  const limit = stack.use(startProgram<SqlWriter>(program("sql_writer")));
  await ours.call("open", { url: await postgres.create("khala") });
  await seed.call("open", { url: await postgres.create("khala"), connections: SEED_CONNECTIONS });
  await limit.call("open", { url: await postgres.create("khala"), connections: 1 });

  const contestants = new Map<string, Measure>([
    ["khala", (load) => ours.call("events", load)],
    ["limit", (load) => limit.call("limit", load)],
    ["seed", (load) => seed.call("seed", load)],
  ]);
  if (centrifugo) {
    const server = stack.use(
      await startCentrifugo({ type: "postgres", dsn: await postgres.create("empty"), shards: 1 }),
    );
    const publisher = stack.use(startProgram<CentrifugoWriter>(program("centrifugo_writer")));
    await publisher.call("open", { port: server.port });
    contestants.set("centrifugo", (load) => publisher.call("documents", load));
  }

  const ms = quick ? 500 : 3_000;
  const rates = new Map<string, number[]>();
  for (let round = -1; round < rounds; round++) {
    for (const writers of WRITERS) {
      for (const [name, measure] of contestants) {
        await postgres.checkpoint();
        const rate = await measure({ writers, ms: round < 0 ? ms / 3 : ms });
        // The first round warms up: caches, plans, compiled code.
        if (round < 0) continue;
        const key = `${name} ${writers}`;
        rates.set(key, [...(rates.get(key) ?? []), rate]);
      }
    }
  }

  const of = (name: string, writers: number): Spread => spread(rates.get(`${name} ${writers}`) ?? []);
  const ratio = (a: string, b: string, writers: number) => of(a, writers).median / of(b, writers).median;
  const row = (title: string, name: string) => [title, ...WRITERS.map((writers) => range(of(name, writers)))];
  const bars: Bar[] = [
    { name: "16 writers, Khala ÷ the seed's SQL", got: ratio("khala", "seed", 16), least: 5 },
    ...(centrifugo
      ? [{ name: "16 writers, Khala ÷ Centrifugo", got: ratio("khala", "centrifugo", 16), least: 10 }]
      : []),
    ...[16, 256].map((n) => ({
      name: `${n} writers, Khala ÷ the limit`,
      got: ratio("khala", "limit", n),
      least: 0.4,
    })),
  ];
  return {
    title: "(a) Durable document updates per second on one topic",
    how: [
      "1,000 documents of about 300 bytes in turn, versions rising; every writer waits for its commit before the next one",
      "Khala: `authority.append` of one event per writer, through the library; the time ends when the last document is in the journal, NOTIFY included",
      `the seed's SQL: upsert, single-row UPDATE … RETURNING and journal insert as one statement, a transaction and a connection per writer (at most ${SEED_CONNECTIONS} connections)`,
      "the limit: one connection, Khala's own statements with ready-made values, as many documents per transaction as there are writers; no events",
      `Centrifugo: HTTP API, Postgres broker, \`num_shards: 1\`, \`use_notify\`, history 100${centrifugo ? "" : ": not installed here"}`,
    ],
    tables: [
      {
        head: ["updates/s, median [min–max]", ...WRITERS.map((n) => `${n} writer${n > 1 ? "s" : ""}`)],
        rows: [
          row("Khala, event appended → document in the journal", "khala"),
          row("the limit, bare SQL in batches", "limit"),
          row("the seed's SQL", "seed"),
          ...(centrifugo ? [row("Centrifugo 6, Postgres broker", "centrifugo")] : []),
        ],
      },
    ],
    bars,
    otherLoad: otherLoad(),
  };
};
