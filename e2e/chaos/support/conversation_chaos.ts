import { randomUUID } from "node:crypto";
import type { ChatRequestJson } from "@khala/contracts/conversation/v1";
import { seqOf, TimelineView } from "@khala/test-support/clients/timeline_view";
import { testContext } from "@khala/test-support/kit/context";
import { eventually } from "@khala/test-support/kit/eventually";
import { tokenMint } from "@khala/test-support/kit/tokens";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { startRedis } from "@khala/test-support/redis/redis";
import { openTestLog } from "@khala/test-support/redis/redis_log";
import type { RedisServer } from "@khala/test-support/redis/server";
import { type GatewayProcess, startGateway } from "@khala/test-support/servers/gateways";
import { expect } from "vitest";
import type { Log } from "../../../packages/server/src/conversations/log/log.ts";
import { openPostgresLog } from "../../../packages/server/src/conversations/log/postgres/postgres_log.ts";
import { Conversation } from "./conversation_chaos_chat.ts";
import type { Device } from "./conversation_chaos_device.ts";
import { readStory } from "./conversation_chaos_log.ts";

/** A message whose answer does not end by itself. */
const ENDLESS = "Count to 1000000";
const SHORT = "Count to 3";
const CONVERSATIONS = 20;
const DEVICES_EACH = 10;
const SOME_WORDS = 2 * ENDLESS.length;
const ORG = "acme";

const SETTINGS = {
  KHALA_CHAT_POLL_MS: "200",
  KHALA_CHAT_READER_GRACE_MS: "500",
  KHALA_HEARTBEAT_MS: "1000",
  KHALA_DATABASE_POOL: "6",
  KHALA_CHAT_LEASE_MS: "60000",
};

/** For tests in which a lease has to run out. In all others none should, however slow the machine is. */
export const SHORT_LEASE = { KHALA_CHAT_LEASE_MS: "6000" };

/** A run in each of some conversations. */
export type Runs = ReadonlyMap<Conversation, string>;

/** Servers, conversations and the devices that have them open, half of them on each server. */
export class ConversationChaos implements AsyncDisposable {
  readonly #mint = tokenMint();
  readonly #log: Log;
  readonly #servers: GatewayProcess[] = [];
  readonly store: TestDatabase;
  readonly redis: RedisServer | undefined;
  readonly conversations: Conversation[] = [];

  private constructor(store: TestDatabase, redis: RedisServer | undefined, log: Log) {
    this.store = store;
    this.redis = redis;
    this.#log = log;
  }

  static async open(backend: "postgres" | "redis"): Promise<ConversationChaos> {
    const store = await testDatabase();
    const wakeups = { send() {} };
    if (backend === "postgres") {
      const log = openPostgresLog(store.database, await testContext(), { ttlMs: 3_600_000, wakeups });
      return new ConversationChaos(store, undefined, log);
    }
    const redis = await startRedis();
    return new ConversationChaos(store, redis, await openTestLog(redis.url));
  }

  get devices(): Device[] {
    return this.conversations.flatMap(({ devices }) => devices);
  }

  /** The devices that are connected to a server now. */
  on(server: GatewayProcess): Device[] {
    return this.devices.filter(({ url }) => url === server.url);
  }

  async #server(env: Readonly<Record<string, string>> = {}): Promise<GatewayProcess> {
    const given = {
      ...SETTINGS,
      DATABASE_URL: this.store.url,
      ...(this.redis && { REDIS_URL: this.redis.url }),
      KHALA_AUTH_SECRETS: this.#mint.secrets,
      ...env,
    };
    const server = await startGateway(given, "talker.ts");
    this.#servers.push(server);
    return server;
  }

  /** Two servers, and every conversation open on its devices, half of them on each. */
  async two(
    one: Readonly<Record<string, string>> = {},
    other = one,
  ): Promise<[GatewayProcess, GatewayProcess]> {
    const servers = await Promise.all([this.#server(one), this.#server(other)]);
    await this.#people();
    const moved = this.devices.filter(({ closes }) => closes.length > 0);
    expect(moved.map((device) => device.describe())).toEqual([]);
    return servers;
  }

  async #people(): Promise<void> {
    const urls = () => this.#servers.map(({ url }) => url);
    for (let i = 0; i < CONVERSATIONS; i++) {
      const token = await this.#mint.mint(ORG, `user-${i}`, { scopes: ["chat"] });
      const convId = `c${i}-${randomUUID()}`;
      this.conversations.push(new Conversation({ convId, token, urls }, DEVICES_EACH));
    }
    for (const device of this.devices) device.start();
    await this.all("is connected", ({ url }) => url !== undefined);
  }

  /** Sends a message to every conversation, to one server after the other. */
  async say(servers: readonly GatewayProcess[], message: string, more: ChatRequestJson = {}): Promise<Runs> {
    const send = async (each: Conversation, i: number): Promise<[Conversation, string]> => {
      const { run_id } = await each.send(servers[i % servers.length]!, message, more);
      return [each, run_id];
    };
    return new Map(await this.#within(Promise.all(this.conversations.map(send))));
  }

  /** Starts answers that do not end by themselves, and waits until every device is in the middle of one. */
  async talk(...servers: readonly GatewayProcess[]): Promise<Runs> {
    const runs = await this.say(servers, ENDLESS);
    await this.grow();
    return runs;
  }

  /** Resolves when every device has got some more words. */
  async grow(): Promise<void> {
    const before = new Map(this.devices.map((device) => [device, device.length]));
    await this.all("hears more", (device) => device.length >= before.get(device)! + SOME_WORDS);
  }

  /** Resolves when all devices have been told how these runs ended: once, and so. */
  async ended(runs: Runs, how: string): Promise<void> {
    const told = [...runs].flatMap(([{ devices }, run]) => devices.map((device) => ({ device, run })));
    const all = () => told.every(({ device, run }) => device.ends.has(run));
    await this.#within(eventually(`every device is told that its run is ${how}`, all));
    for (const { device, run } of told) expect(device.ends.get(run), device.describe()).toEqual([how]);
  }

  /** Resolves when the log says of all these runs that they ended so, whatever devices know. */
  async written(runs: Runs, how: string): Promise<void> {
    for (const [{ id }, run] of runs) {
      const end = () => readStory(this.#log, id).then((story) => story.runs.get(run));
      expect(await this.#within(eventually(`the log of ${id} has an end`, end))).toBe(how);
    }
  }

  /**
   * Every conversation takes a new message and answers it; then every device has exactly the log's text, every server
   * says the same, and the records of the runs agree with the log.
   */
  async agree(...servers: readonly GatewayProcess[]): Promise<void> {
    await this.ended(await this.say(servers, SHORT), "finished");
    await Promise.all(this.conversations.map((each) => this.#agreeOn(each, servers)));
    for (const { running, wanted, output } of this.#servers)
      expect(running || !wanted, `a server ended by itself:\n${output()}`).toBe(true);
  }

  async #agreeOn(conversation: Conversation, servers: readonly GatewayProcess[]): Promise<void> {
    const { id, devices } = conversation;
    const { head, texts, runs } = await readStory(this.#log, id);
    expect([...texts.values()].at(-1)).toBe("1 2 3 ");
    await this.all("is at the head", ({ seq, convId }) => convId !== id || seq === head);
    for (const device of devices) {
      expect(device.view.texts, device.describe()).toEqual(texts);
      expect([...device.wrong, ...device.view.wrong], device.describe()).toEqual([]);
      // A snapshot does not tell how runs ended.
      if (device.resyncs.length === 0)
        expect([...device.ends]).toEqual([...runs].map(([run, end]) => [run, [end]]));
    }
    for (const server of servers) {
      const { cursor, messages } = await conversation.state(server);
      const view = new TimelineView();
      view.apply({ type: "snapshot", messages: messages!, cursor: cursor! });
      expect([seqOf(cursor!), view.texts]).toEqual([head, texts]);
    }
    const agreed = async () => {
      const records = await this.#records(id);
      return records.size === runs.size && [...runs].every(([run, end]) => sameEnd(records.get(run), end));
    };
    await this.#within(eventually(`the records of ${id} agree with its log`, agreed));
  }

  /** Waits until something is true of every device. */
  async all(what: string, holds: (device: Device) => boolean): Promise<void> {
    await this.#within(eventually(`every device ${what}`, () => this.devices.every(holds)));
  }

  async #records(convId: string): Promise<Map<string, string>> {
    const rows = await this.store.database.query<{ run: string; status: string }>({
      text: "SELECT run_id AS run, status FROM runtime.conversation_runs WHERE conv_id = $1",
      values: [convId],
    });
    return new Map(rows.map(({ run, status }) => [run, status]));
  }

  /** Adds to a failure how everybody is. */
  async #within<T>(work: Promise<T>): Promise<T> {
    return work.catch((error: Error) => {
      throw new Error(`${error.message}\n${this.#scene()}`, { cause: error });
    });
  }

  #scene(): string {
    const lines = this.devices.map((device) => device.describe());
    return [...lines, ...this.#servers.map(({ output }) => output().slice(-5_000))].join("\n");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.devices.map((device) => device.stop()));
    await Promise.all(this.#servers.map((server) => server[Symbol.asyncDispose]()));
    await this.#log.stop();
    await this.redis?.[Symbol.asyncDispose]();
    await this.store[Symbol.asyncDispose]();
  }
}

/** Whether the record of a run says what its log says. */
function sameEnd(status: string | undefined, end: string | undefined): boolean {
  return status === (end === "finished" || end === "stopped" ? end : "failed");
}
