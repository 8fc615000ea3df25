import { createClient } from "@khala/client";
import { createSyncClient, type SyncClient } from "@khala/client/sync";
import { runSummaries } from "@khala/server";
import { listAll } from "@khala/test-support/clients/lists";
import { until } from "@khala/test-support/kit/until";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { startTcpProxy, type TcpProxy } from "@khala/test-support/processes/tcp_proxy";
import { RUNS, startServer, type TestServer } from "@khala/test-support/servers/servers";
import { expect } from "vitest";
import { browserEnvironment } from "../../../packages/client/src/browser_environment.ts";
import type { BroadcastLike, Environment } from "../../../packages/client/src/environment.ts";
import { Locks } from "../../../packages/client/src/tabs/test_support.ts";
import { trimTopic } from "../../../packages/server/src/sync/rebuild/retention.ts";
import { CLIENTS, type Command } from "./client_commands.ts";
import { BreakableStore } from "./client_storage.ts";

const SETTINGS = {
  KHALA_POLL_MS: "20",
  KHALA_REPLAY_MAX_UPDATE_BYTES: "1024",
  KHALA_REPLAY_MAX_UPDATES: "5",
  KHALA_DRAIN_MS: "100",
};

/** A server behind a breakable line, for one history after another. */
export class ClientStage implements AsyncDisposable {
  readonly database: TestDatabase;
  readonly proxy: TcpProxy;
  server: TestServer;

  private constructor(database: TestDatabase, server: TestServer, proxy: TcpProxy) {
    this.database = database;
    this.server = server;
    this.proxy = proxy;
  }

  static async open(): Promise<ClientStage> {
    const database = await testDatabase();
    const server = await startServer(database.url, { settings: SETTINGS });
    return new ClientStage(database, server, await startTcpProxy(targetOf(server)));
  }

  /** Another one in its place, at the same address as far as clients can tell. */
  async restart(): Promise<void> {
    await this.server[Symbol.asyncDispose]();
    this.server = await startServer(this.database.url, { settings: SETTINGS });
    this.proxy.switchTo(targetOf(this.server));
    // Connections to the old one may still be held back, half dead.
    this.proxy.cut();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.proxy[Symbol.asyncDispose]();
    await this.server[Symbol.asyncDispose]();
    await this.database[Symbol.asyncDispose]();
  }
}

const targetOf = ({ url }: TestServer) => ({ host: "127.0.0.1", port: Number(new URL(url).port) });

interface Opened {
  readonly khala: SyncClient;
  readonly death: AbortController;
}

let worlds = 0;

/** The clients of one person: two tabs of a browser and one elsewhere, and whether what they saw can be true. */
export class ClientWorld implements AsyncDisposable {
  readonly #stage: ClientStage;
  readonly #anchored: boolean;
  readonly #org = `world-${++worlds}`;
  readonly #locks = new Locks();
  readonly #stores = [new BreakableStore(), new BreakableStore()];
  readonly #clients: Opened[] = [];
  readonly #versions = new Map<string, number>();
  readonly #alive = new Set<string>();
  readonly #complaints: string[] = [];
  #hours = 0;

  private constructor(stage: ClientStage, anchored: boolean) {
    this.#stage = stage;
    this.#anchored = anchored;
  }

  static async open(stage: ClientStage, anchored: boolean): Promise<ClientWorld> {
    const world = new ClientWorld(stage, anchored);
    if (anchored) await world.#write("anchor", { text: "is never deleted" });
    for (let which = 0; which < CLIENTS; which++) world.#open(which);
    await world.settle();
    return world;
  }

  /** The first two are tabs. Node has channels, and no locks that end with a tab. */
  #open(which: number): void {
    const death = new AbortController();
    const isTab = which < 2;
    const { locks: _, ...platform } = browserEnvironment();
    const environment: Environment = {
      ...platform,
      now: () => Date.now() + this.#hours * 3_600_000,
      ...(isTab && {
        locks: this.#locks.of(death.signal),
        openBroadcast: (name: string) => broadcast(name, death.signal),
      }),
    };
    const options = {
      url: this.#stage.proxy.through(this.#stage.server.url),
      token: () => this.#stage.server.token({ org_id: this.#org }),
      storage: this.#stores[isTab ? 0 : 1]!.open(death.signal),
      environment,
    };
    const khala = isTab ? createClient({ ...options, shareTabs: true }) : createSyncClient(options);
    this.#clients[which] = { khala, death };
    this.#watch(which, khala);
  }

  /** Whatever a listener sees must be possible after what it saw before. */
  #watch(which: number, { sync }: Opened["khala"]): void {
    const seen = new Map<string, number>();
    let had = 0;
    sync.subscribe(RUNS, () => {
      const { items } = sync.list(RUNS);
      for (const { key, version } of items) {
        const before = seen.get(key) ?? 0;
        if (Number(version) < before)
          this.#complaints.push(`client ${which} saw ${key} go from ${before} to ${version}`);
        seen.set(key, Math.max(before, Number(version)));
      }
      if (this.#anchored && had > 0 && items.length === 0)
        this.#complaints.push(`client ${which} saw nothing after ${had} documents`);
      had = items.length;
    });
  }

  async run(command: Command): Promise<void> {
    const { proxy } = this.#stage;
    switch (command.do) {
      case "write":
        return this.#write(String(command.key), { text: "small" });
      case "write_large":
        return this.#write(String(command.key), { text: "large".repeat(500) });
      case "delete":
        return this.#write(String(command.key), undefined);
      case "cut":
        return proxy.cut();
      case "refuse":
        return proxy.refuse();
      case "stall":
        return proxy.pause();
      case "half_open":
        return proxy.pause("answers");
      case "resume":
        return proxy.resume();
      case "trim":
        await trimTopic(this.#stage.database.database, runSummaries, 0);
        return;
      case "restart_server":
        return this.#stage.restart();
      case "breathe":
        return this.#breathe();
      case "storage":
        for (const store of this.#stores) store.fault = command.fault;
        return;
      case "corrupt":
        for (const store of this.#stores) store.corrupt(command.which);
        return;
      case "reopen":
        await this.#clients[command.client]!.khala.close();
        return this.#open(command.client);
      case "kill":
        await this.#kill(command.client);
        return this.#open(command.client);
      case "pause":
        return this.#clients[command.client]!.khala.connection.pause();
      case "connect":
        return this.#clients[command.client]!.khala.connection.connect();
      case "jump":
        this.#hours += command.hours;
    }
  }

  /** It says nothing more and stores nothing more; what it held is free. */
  async #kill(which: number): Promise<void> {
    const { khala, death } = this.#clients[which]!;
    death.abort();
    await khala.close();
  }

  async #write(name: string, payload: object | undefined): Promise<void> {
    const key = `run:${this.#org}-${name}`;
    const version = (this.#versions.get(key) ?? 0) + 1;
    this.#versions.set(key, version);
    if (payload) this.#alive.add(key);
    else this.#alive.delete(key);
    const document = { key, version, org: this.#org, ...(payload && { payload: { ...payload, version } }) };
    await this.#stage.server.write(document);
  }

  /** Gives clients that can the time to hear of everything. Those that cannot are not waited for. */
  async #breathe(): Promise<void> {
    const hasAll = ({ khala }: Opened) => {
      const { items } = khala.sync.list(RUNS);
      const right = items.filter(
        ({ key, version }) => this.#alive.has(key) && Number(version) === this.#versions.get(key),
      );
      return items.length === this.#alive.size && right.length === items.length;
    };
    await until("all is there", () => this.#clients.every(hasAll), { deadlineMs: 200 }).catch(() => {});
  }

  /** Lets everything come to rest: each client has what the server has, and nothing that it saw was impossible. */
  async settle(): Promise<void> {
    const { proxy, server } = this.#stage;
    proxy.resume();
    for (const { khala } of this.#clients) khala.connection.connect();
    const { documents } = await listAll(server, await server.token({ org_id: this.#org }), RUNS);
    const expected = documents.map(({ doc_key, doc_version, payload }) => [doc_key, doc_version, payload]);
    for (const [which, { khala }] of this.#clients.entries()) {
      const shown = () => khala.sync.list(RUNS).items.map(({ key, version, data }) => [key, version, data]);
      const isSame = () =>
        khala.sync.list(RUNS).phase === "live" && JSON.stringify(shown()) === JSON.stringify(expected);
      await until(`client ${which} has what the server has`, isSame, { deadlineMs: 60_000 }).catch(
        (error: Error) => {
          const { phase, error: why } = khala.sync.list(RUNS);
          const status = khala.connection.status();
          const facts = { phase, why, status, shown: shown(), expected };
          throw new Error(`${error.message} ${JSON.stringify(facts)}`);
        },
      );
    }
    expect(this.#complaints).toEqual([]);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stage.proxy.resume();
    for (const { khala } of this.#clients) await khala.close();
  }
}

/** A real channel, silent once the tab is dead. */
function broadcast(name: string, dead: AbortSignal): BroadcastLike {
  const channel = new BroadcastChannel(name);
  const like: BroadcastLike = {
    onmessage: null,
    postMessage: (message) => {
      if (!dead.aborted) channel.postMessage(message);
    },
    close: () => channel.close(),
  };
  channel.onmessage = (event) => {
    if (!dead.aborted) like.onmessage?.(event as MessageEvent);
  };
  dead.addEventListener("abort", () => channel.close());
  return like;
}
