import { KhalaError, topicForConv } from "@khala/contracts";
import type { ConversationStateJson } from "@khala/contracts/conversation/v1";
import { testContext } from "@khala/test-support/kit/context";
import { until } from "@khala/test-support/kit/until";
import { testViewer } from "@khala/test-support/kit/viewer";
import { expect } from "vitest";
import type { Log } from "../../../packages/server/src/conversations/log/log.ts";
import type { Servers, TestServer } from "../../../packages/server/src/conversations/test_support.ts";
import type { HistoryCommand } from "./history_commands.ts";
import { HistoryDevice } from "./history_device.ts";
import { HistoryEngine } from "./history_engine.ts";
import { activeBranch, recordedCalls, sorted } from "./history_tables.ts";
import { Killable } from "./killable.ts";

/** Where the logs are. */
export interface LogStore extends AsyncDisposable {
  /** A server's own handle; without one, its log is in PostgreSQL. */
  open?(): Promise<Log>;
  /** Loses a log without telling anybody, as FLUSHALL does. */
  lose(servers: Servers, stream: string): Promise<void>;
}

/** What may be answered to somebody who is too late, or too early. */
const REFUSALS = new Set([
  "conversation_busy",
  "already_decided",
  "run_begun",
  "not_found",
  "limit_exceeded",
  "unavailable",
  "invalid_request",
]);
const DEVICES = 3;
const LEASE_MS = 600;

interface Running {
  readonly server: TestServer;
  readonly life: Killable;
  readonly log: Log | undefined;
}

/** A conversation of two people on two servers with a few devices. */
export class HistoryWorld {
  readonly #servers: Servers;
  readonly #store: LogStore;
  readonly #convId: string;
  readonly #seed: number;
  readonly #engine = new HistoryEngine();
  readonly #ada = testViewer({ subject: "ada" });
  readonly #bob = testViewer({ subject: "bob" });
  readonly #devices: HistoryDevice[];
  #running: Running[] = [];
  #count = 0;
  /** How often each command did something. */
  readonly done = new Map<string, number>();

  private constructor(servers: Servers, store: LogStore, convId: string, seed: number) {
    this.#servers = servers;
    this.#store = store;
    this.#convId = convId;
    this.#seed = seed;
    this.#devices = Array.from(
      { length: DEVICES },
      (_, i) => new HistoryDevice(i % 2 ? this.#bob : this.#ada, convId),
    );
  }

  /** Begins with two servers, a conversation that bob takes part in, and a device. */
  static async open(servers: Servers, store: LogStore, convId: string, seed: number): Promise<HistoryWorld> {
    const world = new HistoryWorld(servers, store, convId, seed);
    for (let i = 0; i < 2; i++) world.#running.push(await world.#start());
    await world.#plane(0).chat(world.#ada, { convId, message: "hello" });
    await world.#plane(0).putParticipant(world.#ada, convId, { subject: "bob", role: "member" });
    await world.#devices[0]!.attach(world.#server(0));
    return world;
  }

  async run(command: HistoryCommand): Promise<void> {
    try {
      await this.#do(command);
      this.done.set(command.do, (this.done.get(command.do) ?? 0) + 1);
    } catch (error) {
      if (!(error instanceof KhalaError && REFUSALS.has(error.code))) throw error;
    }
    for (const id of recordedCalls((await this.#state()).messages ?? [])) this.#engine.recorded.add(id);
  }

  /** Lets everything end; then every device, every server and the tables say the same, with the log and without it. */
  async settle(): Promise<void> {
    await until("nothing is under way", async () => {
      this.#engine.release();
      const { run, queued = [] } = await this.#state();
      if (!run && queued.length === 0) return this.#isStored();
      await this.#decideAll(run);
      return false;
    });
    await this.#agree("at the end");
    await this.#store.lose(this.#servers, topicForConv(this.#convId));
    this.#running.push(await this.#start());
    const fresh = new HistoryDevice(this.#ada, this.#convId);
    await fresh.attach(this.#server(this.#running.length - 1));
    this.#devices.push(fresh);
    await this.#agree("without the log");
    expect(this.#engine.again, "tools that ran again after they were recorded as done").toEqual([]);
    const failed = await this.#servers.database.query<{ error: string }>({
      text: `SELECT error::text AS error FROM runtime.conversation_runs
        WHERE conv_id = $1 AND status = 'failed' AND error::text NOT LIKE '%server_lost%'`,
      values: [this.#convId],
    });
    expect(failed, "runs that failed").toEqual([]);
  }

  async close(): Promise<void> {
    for (const device of this.#devices) device.detach();
    for (const running of this.#running.splice(0)) await this.#stop(running);
  }

  async #do(command: HistoryCommand): Promise<void> {
    const convId = this.#convId;
    const server = this.#server("server" in command ? command.server : 0);
    const { plane } = server;
    switch (command.do) {
      case "send": {
        const { words, policy } = command;
        const message = [`m${++this.#count}`, ...words].join(" ");
        await plane.chat(this.#count % 3 ? this.#ada : this.#bob, { convId, message, policy });
        return;
      }
      case "regenerate":
      case "edit": {
        const of = command.do === "edit" ? "user" : undefined;
        const id = await this.#message(command.pick, of);
        const message = command.do === "edit" ? `e${++this.#count} work` : "";
        await plane.chat(this.#ada, { convId, message, [command.do]: id, policy: "queue" });
        return;
      }
      case "choose": {
        await this.#rest();
        const all = await this.#servers.database.query<{ id: string }>({
          text: "SELECT message_id AS id FROM runtime.messages WHERE conv_id = $1 ORDER BY inserted_at, message_id",
          values: [convId],
        });
        await plane.chooseBranch(this.#ada, convId, all[command.pick % all.length]!.id);
        return;
      }
      case "decide": {
        await this.#rest();
        const { waits_for: calls = [] } = (await this.#state()).run ?? {};
        if (calls.length === 0) throw new KhalaError("not_found", "Nothing waits.");
        const { tool_call_id: callId = "", waits_for } = calls[command.pick % calls.length]!;
        const decision =
          waits_for === "output" ? { output: { city: "Bern" } } : { approve: command.approve, reason: "So." };
        // Two devices on two servers at once.
        const told = await Promise.all(
          this.#running.map(({ server: { plane } }) =>
            plane.decideCalls(this.#ada, convId, [{ callId, decision }]),
          ),
        );
        expect(new Set(told.map((one) => JSON.stringify(one))).size, "answers to one decision").toBe(1);
        return;
      }
      case "editQueued":
      case "cancelQueued": {
        const { queued = [] } = await this.#state();
        if (queued.length === 0) throw new KhalaError("not_found", "Nothing is queued.");
        const { run_id: runId = "", author } = queued[command.pick % queued.length]!;
        const by = author === "bob" ? this.#bob : this.#ada;
        if (command.do === "cancelQueued") await plane.cancelQueued(by, convId, runId);
        else await plane.editQueued(by, convId, runId, { message: `q${++this.#count} ask` });
        return;
      }
      case "post": {
        const message_id = `${convId}-p${++this.#count}`;
        await plane.post(this.#bob, convId, [
          { message: { message_id, text: `post ${this.#count}` } },
          { custom: { message_id, name: "note", data: { n: command.pick } } },
        ]);
        return;
      }
      case "attach": {
        const device = this.#devices[command.device % DEVICES]!;
        if (command.fresh) device.forget();
        return device.attach(server);
      }
      case "stop":
        await plane.stopRun(this.#ada, convId);
        return;
      case "kill":
      case "deploy":
        return this.#replace(command.server, command.do);
      case "release":
        return this.#engine.release();
      case "rest":
        return this.#rest();
      case "trim":
        return this.#trim();
      case "lose":
        return this.#lose();
    }
  }

  async #start(): Promise<Running> {
    const life = new Killable();
    const context = await testContext({ clock: life.clock, seed: this.#seed + this.#running.length });
    const log = await this.#store.open?.();
    const server = await this.#servers.start({
      engine: this.#engine.on(life),
      context,
      leaseMs: LEASE_MS,
      wrapDatabase: life.database,
      wrapLog: (own) => life.log(log ?? own),
    });
    return { server, life, log };
  }

  async #replace(index: number, how: "kill" | "deploy"): Promise<void> {
    const gone = this.#running[index]!;
    if (how === "kill") {
      gone.life.kill();
      for (const device of this.#devices) if (device.server === gone.server) device.lose();
      await this.#servers.forget(gone.server);
      await gone.log?.stop();
    } else {
      await gone.server.plane.drain(0);
      await this.#stop(gone);
    }
    this.#running[index] = await this.#start();
  }

  async #stop({ server, log }: Running): Promise<void> {
    for (const device of this.#devices) if (device.server === server) device.lose();
    await server.plane.stop();
    await this.#servers.forget(server);
    await log?.stop();
  }

  /** As the janitor, which keeps of the log what is not stored of the active run. */
  async #trim(): Promise<void> {
    const { run } = await this.#state();
    const [row] = await this.#servers.database.query<{ stored: bigint | null }>({
      text: "SELECT max(log_seq) AS stored FROM runtime.messages WHERE conv_id = $1 AND run_id = $2",
      values: [this.#convId, run?.run_id ?? ""],
    });
    const upTo = run && { upTo: row?.stored ?? 0n };
    const { log, server } = this.#running[0]!;
    await (log ?? server.log).trim(topicForConv(this.#convId), { entries: 2, ...upTo });
  }

  /** What was only in the log is lost with it, also that a tool had run. */
  async #lose(): Promise<void> {
    await this.#store.lose(this.#servers, topicForConv(this.#convId));
    this.#engine.recorded.clear();
    const rows = await activeBranch(this.#servers.database, this.#convId);
    for (const id of recordedCalls(rows)) this.#engine.recorded.add(id);
  }

  /** The rows of runs are written after their logs. */
  async #isStored(): Promise<boolean> {
    const live = await this.#servers.database.query({
      text: "SELECT FROM runtime.conversation_runs WHERE conv_id = $1 AND status IN ('queued', 'running', 'waiting')",
      values: [this.#convId],
    });
    return live.length === 0;
  }

  /** Waits until no run is under way, or it waits for somebody. */
  async #rest(): Promise<void> {
    await until("a moment without work", async () => {
      const { run } = await this.#state();
      return !run || run.status === "waiting" || this.#engine.isSlow(run.run_id);
    });
  }

  async #decideAll(run: ConversationStateJson["run"]): Promise<void> {
    for (const { tool_call_id: callId = "", waits_for } of run?.waits_for ?? []) {
      const decision = waits_for === "output" ? { output: { city: "Bern" } } : { approve: true };
      await this.#plane(0)
        .decideCalls(this.#ada, this.#convId, [{ callId, decision }])
        .catch((error) => {
          if (!(error instanceof KhalaError && REFUSALS.has(error.code))) throw error;
        });
    }
  }

  /** Everybody has what the tables have. */
  async #agree(when: string): Promise<void> {
    const truth = await activeBranch(this.#servers.database, this.#convId);
    for (const { server } of this.#running) {
      const seen = () => server.plane.state(this.#ada, this.#convId);
      await this.#becomes(async () => (await seen()).messages, truth, `GET /chat/:id ${when}`);
      const all = [];
      for (let before: string | undefined, more = true; more; more = before !== undefined) {
        const query = { before, leaf: undefined, limit: 3 };
        const page = await server.plane.messages(this.#ada, this.#convId, query);
        all.unshift(...page.messages);
        before = page.before;
      }
      const ids = (of: readonly { message_id?: string }[]) => of.map(({ message_id }) => message_id);
      expect(ids(all), `GET /chat/:id/messages ${when}`).toEqual(ids(truth));
    }
    for (const [i, device] of this.#devices.entries()) {
      await this.#becomes(
        async () => {
          if (!device.live) await device.attach(this.#server(i));
          if (device.failure) throw device.failure;
          return device.transcript.messages;
        },
        truth,
        `device ${i} ${when}`,
      );
      expect(device.transcript.run, `the run of device ${i} ${when}`).toBeNull();
    }
  }

  async #becomes<T>(look: () => Promise<T>, want: unknown, what: string): Promise<void> {
    let seen: T | undefined;
    const text = JSON.stringify(want);
    const isThere = async () => {
      const now = await look().catch(later);
      if (now === undefined) return false;
      seen = sorted(now);
      return JSON.stringify(seen) === text;
    };
    await until(what, isThere, { deadlineMs: 5_000 }).catch((error) => {
      if (seen !== undefined) expect(seen, what).toEqual(want);
      throw error;
    });
  }

  async #message(pick: number, role: string | undefined): Promise<string> {
    const { messages = [] } = await this.#state();
    const some = messages.filter((message) => !role || message.role === role);
    if (some.length === 0) throw new KhalaError("not_found", "There is no such message.");
    return some[pick % some.length]!.message_id!;
  }

  #server(index: number): TestServer {
    return this.#running[index % this.#running.length]!.server;
  }

  #plane(index: number) {
    return this.#server(index).plane;
  }

  /** After a kill or a lost log a server may have to read again, and says when. */
  async #state(): Promise<ConversationStateJson> {
    return until("the state", () => this.#plane(0).state(this.#ada, this.#convId).catch(later));
  }
}

function later(error: unknown): undefined {
  if (!(error instanceof KhalaError && error.code === "unavailable")) throw error;
}
