import { createSyncClient, type SyncClient } from "@khala/client/sync";
import { runSummaries } from "@khala/server";
import fc from "fast-check";
import { afterAll, beforeAll, expect, test } from "vitest";
import { browserEnvironment } from "../packages/client/src/browser_environment.ts";
import { memory } from "../packages/client/src/storage/memory.ts";
import type { Storage } from "../packages/client/src/storage/storage.ts";
import { trimTopic } from "../packages/server/src/sync/retention.ts";
import { listAll } from "./support/lists.ts";
import { type TestDatabase, testDatabase } from "./support/postgres.ts";
import { RUNS, startServer, type TestServer } from "./support/servers.ts";
import { startTcpProxy, type TcpProxy } from "./support/tcp_proxy.ts";
import { until } from "./support/until.ts";

// KHALA_PROPERTY_RUNS makes it search longer, KHALA_PROPERTY_SEED repeats a search.
const HISTORIES = Number(process.env.KHALA_PROPERTY_RUNS ?? 8);
const SEED = Number(process.env.KHALA_PROPERTY_SEED ?? Date.now() % 2 ** 31);

let database: TestDatabase;
let server: TestServer;
let proxy: TcpProxy;
beforeAll(async () => {
  database = await testDatabase();
  server = await startServer(database.url, {
    settings: { KHALA_POLL_MS: "20", KHALA_REPLAY_MAX_UPDATE_BYTES: "1024", KHALA_REPLAY_MAX_UPDATES: "5" },
  });
  proxy = await startTcpProxy({ host: "127.0.0.1", port: Number(new URL(server.url).port) });
});
afterAll(async () => {
  await proxy[Symbol.asyncDispose]();
  await server[Symbol.asyncDispose]();
  await database[Symbol.asyncDispose]();
});

/** What can happen. */
type Command =
  | { readonly do: "write" | "delete" | "write_large"; readonly key: number }
  | { readonly do: "cut" | "refuse" | "resume" | "trim" | "breathe" }
  | { readonly do: "storage"; readonly fails: "never" | "commit" | "load" | "all" }
  | { readonly do: "restart" | "pause" | "connect"; readonly client: number }
  | { readonly do: "jump"; readonly hours: number };

const key = fc.nat({ max: 7 });
const client = fc.nat({ max: 1 });
const fails = fc.constantFrom("never", "never", "commit", "load", "all");
const hours = fc.integer({ min: -3, max: 3 });
const command = fc.oneof(
  {
    arbitrary: fc.record({ do: fc.constantFrom("write", "write", "write_large", "delete"), key }),
    weight: 8,
  },
  { arbitrary: fc.record({ do: fc.constant("breathe") }), weight: 6 },
  { arbitrary: fc.record({ do: fc.constantFrom("cut", "refuse", "resume", "resume", "trim") }), weight: 4 },
  { arbitrary: fc.record({ do: fc.constant("storage"), fails }), weight: 3 },
  {
    arbitrary: fc.record({ do: fc.constantFrom("restart", "restart", "pause", "connect"), client }),
    weight: 4,
  },
  { arbitrary: fc.record({ do: fc.constant("jump"), hours }), weight: 1 },
) as fc.Arbitrary<Command>;

let worlds = 0;

/** Two clients of one person, each with a storage that outlives it, and what they have seen. */
class World {
  readonly org = `world-${++worlds}`;
  readonly #storages = [memory(), memory()];
  readonly #clients: SyncClient[] = [];
  readonly #versions = new Map<string, number>();
  readonly #alive = new Set<string>();
  readonly #complaints: string[] = [];
  #fails = "never";
  #hours = 0;

  open(which: number): void {
    const environment = browserEnvironment();
    const client = createSyncClient({
      url: proxy.through(server.url),
      token: () => server.token({ org_id: this.org }),
      storage: this.#storage(which),
      environment: { ...environment, now: () => Date.now() + this.#hours * 3_600_000 },
    });
    this.#clients[which] = client;
    const seen = new Map<string, number>();
    client.sync.subscribe(RUNS, () => {
      for (const { key, version } of client.sync.list(RUNS).items) {
        if (Number(version) < (seen.get(key) ?? 0)) this.#complaints.push(`${key} went back to ${version}`);
        seen.set(key, Number(version));
      }
    });
  }

  #storage(which: number): Storage {
    const storage = this.#storages[which]!;
    const failing = <T>(name: string, work: () => Promise<T>): Promise<T> =>
      this.#fails === name || this.#fails === "all" ? Promise.reject(new Error(`${name} fails`)) : work();
    return {
      load: (...args) => failing("load", () => storage.load(...args)),
      commit: (...args) => failing("commit", () => storage.commit(...args)),
      clear: (...args) => failing("clear", () => storage.clear(...args)),
      // It is used again.
      close: async () => {},
    };
  }

  async run(command: Command): Promise<void> {
    switch (command.do) {
      case "write":
        return this.#write(command.key, { text: "small" });
      case "write_large":
        return this.#write(command.key, { text: "large".repeat(500) });
      case "delete":
        return this.#write(command.key, undefined);
      case "cut":
        return proxy.cut();
      case "refuse":
        return proxy.refuse();
      case "resume":
        return proxy.resume();
      case "trim":
        await trimTopic(database.database, runSummaries, 0);
        return;
      case "breathe":
        return this.#breathe();
      case "storage":
        this.#fails = command.fails;
        return;
      case "restart":
        await this.#clients[command.client]!.close();
        return this.open(command.client);
      case "pause":
        return this.#clients[command.client]!.connection.pause();
      case "connect":
        return this.#clients[command.client]!.connection.connect();
      case "jump":
        this.#hours += command.hours;
    }
  }

  async #write(which: number, payload: object | undefined): Promise<void> {
    const key = `run:${this.org}-${which}`;
    const version = (this.#versions.get(key) ?? 0) + 1;
    this.#versions.set(key, version);
    if (payload) this.#alive.add(key);
    else this.#alive.delete(key);
    await server.write({ key, version, org: this.org, ...(payload && { payload: { ...payload, version } }) });
  }

  /** Gives clients that can the time to hear of everything. Those that cannot are not waited for. */
  async #breathe(): Promise<void> {
    const newest = ({ sync }: SyncClient) => {
      const { items } = sync.list(RUNS);
      const right = items.filter(
        ({ key, version }) => this.#alive.has(key) && Number(version) === this.#versions.get(key),
      );
      return items.length === this.#alive.size && right.length === items.length;
    };
    await until("all is there", () => this.#clients.every(newest), { deadlineMs: 200 }).catch(() => {});
  }

  /** Lets everything come to rest: both clients have what the server has. */
  async settle(): Promise<void> {
    proxy.resume();
    for (const { connection } of this.#clients) connection.connect();
    const { documents } = await listAll(server, await server.token({ org_id: this.org }), RUNS);
    const expected = documents.map(({ doc_key, doc_version, payload }) => [doc_key, doc_version, payload]);
    for (const { sync, connection } of this.#clients) {
      const shown = () => sync.list(RUNS).items.map(({ key, version, data }) => [key, version, data]);
      await until(
        "the client has what the server has",
        () => {
          return sync.list(RUNS).phase === "live" && JSON.stringify(shown()) === JSON.stringify(expected);
        },
        { deadlineMs: 30_000 },
      ).catch((error: Error) => {
        const { phase, error: why } = sync.list(RUNS);
        throw new Error(
          `${error.message} ${JSON.stringify({ phase, why, status: connection.status(), shown: shown(), expected })}`,
        );
      });
    }
    expect(this.#complaints).toEqual([]);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const client of this.#clients) await client.close();
  }
}

async function happens(commands: readonly Command[]): Promise<void> {
  await using world = new World();
  world.open(0);
  world.open(1);
  await world.settle();
  for (const one of commands) await world.run(one);
  await world.settle();
}

/** Histories that a search seldom finds. */
const KEPT: readonly { readonly name: string; readonly commands: readonly Command[] }[] = [
  {
    name: "what could not be stored is not missing after a restart",
    commands: [
      { do: "write", key: 0 },
      { do: "breathe" },
      { do: "storage", fails: "commit" },
      { do: "write", key: 0 },
      { do: "breathe" },
      { do: "storage", fails: "never" },
      { do: "write", key: 1 },
      { do: "breathe" },
      { do: "restart", client: 0 },
    ],
  },
  {
    name: "what was too large and not fetched is fetched after a restart",
    commands: [
      { do: "write", key: 0 },
      { do: "breathe" },
      { do: "write_large", key: 0 },
      { do: "refuse" },
      { do: "restart", client: 0 },
      { do: "restart", client: 1 },
    ],
  },
  {
    name: "a purged position is listed anew after a restart, also when a document went meanwhile",
    commands: [
      { do: "write", key: 0 },
      { do: "write", key: 1 },
      { do: "breathe" },
      { do: "refuse" },
      { do: "delete", key: 0 },
      { do: "trim" },
      { do: "restart", client: 0 },
    ],
  },
];

test.for(KEPT)("$name", ({ commands }) => happens(commands));

test("whatever happens to the network, the storage and the clock, clients end up with what the server has", {
  timeout: HISTORIES * 60_000,
}, async () => {
  console.log(`KHALA_PROPERTY_SEED=${SEED} KHALA_PROPERTY_RUNS=${HISTORIES}`);
  const property = fc.asyncProperty(fc.array(command, { minLength: 5, maxLength: 40 }), happens);
  await fc.assert(property, { seed: SEED, numRuns: HISTORIES, endOnFailure: true });
});
