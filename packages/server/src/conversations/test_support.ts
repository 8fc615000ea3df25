import { randomUUID } from "node:crypto";
import type { EventJson } from "@khala/contracts/conversation/v1";
import { testContext } from "@khala/test-support/kit/context";
import { until } from "@khala/test-support/kit/until";
import { testViewer } from "@khala/test-support/kit/viewer";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import type { Database } from "../database/database.ts";
import type { Clock } from "../kit/clock.ts";
import type { Context } from "../kit/context.ts";
import type { Engine, EngineEvent, EngineFactory } from "./engines/engine.ts";
import { openFiles } from "./files/files.ts";
import { openPostgresFileStore } from "./files/postgres_file_store.ts";
import type { Bounds, Log } from "./log/log.ts";
import { openPostgresLog, type PostgresLog } from "./log/postgres/postgres_log.ts";
import {
  type OpenConversationPlane,
  openConversationPlane,
  PEOPLE_WAKEUP,
  STOP_WAKEUP,
  TAKEOVER_WAKEUP,
} from "./open_plane.ts";
import type { ConversationSettings, RunEvents } from "./options.ts";
import { PRESENCE_WAKEUP } from "./people/presence.ts";
import { readEntry, type TimelineEvent } from "./timeline/timeline.ts";

/** Settings under which nothing happens by itself within a test, except what a test is about. */
const SETTINGS: ConversationSettings = {
  graceMs: 30_000,
  recentBytes: 100_000,
  pollMs: 50,
  bookmarkMs: 1_000,
  leaseMs: 10_000,
  runTimeoutMs: 60_000,
  runMaxBytes: 10_000_000,
  queueLimit: 3,
  engineIdleMs: 60_000,
  maxEngines: 100,
  maxRunsPerOrg: 100,
  maxMessagesPerOrg: 10_000,
  deltaWindowMs: 30,
  deltaChars: 128,
  retention: { ageMs: 3_600_000, entries: 10_000, bytes: 10_000_000 },
  ttlMs: 3_600_000,
  janitorEveryMs: 3_600_000,
};

export interface TestServerOptions extends Partial<ConversationSettings> {
  readonly engine: EngineFactory;
  readonly clock?: Clock;
  /** Replaces the context, and the clock with it. */
  readonly context?: Context;
  /** Replaces the log, such as by one that fails. */
  readonly wrapLog?: (log: Log) => Log;
  /** Replaces what the plane has of the database, such as by one that can be cut off. */
  readonly wrapDatabase?: (database: Database) => Database;
  readonly runs?: RunEvents;
}

/** A server, as far as conversations are concerned. */
export interface TestServer {
  readonly plane: OpenConversationPlane;
  readonly log: PostgresLog;
  readonly context: Context;
  /** Its events in the event log, as `<run_id> <type>`. */
  readonly reported: string[];
}

/** Servers on a database of their own that send each other wakeups. */
export class Servers implements AsyncDisposable {
  readonly #store: TestDatabase;
  readonly #servers: TestServer[] = [];
  /** False loses every wakeup. */
  wakeupsOn = true;

  private constructor(store: TestDatabase) {
    this.#store = store;
  }

  static async open(): Promise<Servers> {
    return new Servers(await testDatabase({ poolSize: 8 }));
  }

  get database(): Database {
    return this.#store.database;
  }

  async start({
    engine,
    clock,
    context: given,
    wrapLog = (log) => log,
    wrapDatabase = (database) => database,
    runs,
    ...settings
  }: TestServerOptions): Promise<TestServer> {
    const context = given ?? (await testContext({ ...(clock && { clock }) }));
    const reported: string[] = [];
    const wakeups = { send: (name: string) => this.#onWakeup(server, name) };
    const log = openPostgresLog(this.database, context, { ttlMs: 3_600_000, wakeups });
    const plane = await openConversationPlane(wrapDatabase(this.database), wrapLog(log), context, {
      ...SETTINGS,
      ...settings,
      engine,
      wakeups,
      files: openFiles(this.database, context, {
        store: openPostgresFileStore(this.database),
        maxBytes: 25 << 20,
      }),
      publish: async () => [],
      runs: runs ?? {
        append: async ({ runId }, type) => void reported.push(`${runId} ${type}`),
      },
    });
    const server: TestServer = { plane, log, context, reported };
    this.#servers.push(server);
    return server;
  }

  /** Sends a server no more wakeups, and does not stop it in the end: the caller has, or has cut it off. */
  async forget(server: TestServer): Promise<void> {
    this.#servers.splice(this.#servers.indexOf(server), 1);
    await server.log.stop();
  }

  #onWakeup(from: TestServer, name: string): void {
    if (!this.wakeupsOn) return;
    for (const { plane, log } of this.#servers.filter((server) => server !== from)) {
      if (name === TAKEOVER_WAKEUP) plane.onTakeoverWakeup();
      else if (name === PEOPLE_WAKEUP) plane.onPeopleWakeup();
      else if (name.startsWith(PRESENCE_WAKEUP)) plane.onPresenceWakeup(name.slice(PRESENCE_WAKEUP.length));
      else if (name.startsWith(STOP_WAKEUP)) plane.onStopWakeup(name.slice(STOP_WAKEUP.length));
      else log.onWakeup(name.slice("log:".length));
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.#servers.map(({ plane }) => plane.stop()));
    await Promise.all(this.#servers.map(({ log }) => log.stop()));
    await this.#store[Symbol.asyncDispose]();
  }
}

/** A log whose first `open` waits, as of a server that stalls before it writes. */
export function stallFirstOpen(log: Log): { log: Log; stalled: Promise<void>; release(): void } {
  const stalled = Promise.withResolvers<void>();
  const gate = Promise.withResolvers<void>();
  let first = true;
  const open: Log["open"] = async (stream, generation) => {
    if (first) {
      first = false;
      stalled.resolve();
      await gate.promise;
    }
    return log.open(stream, generation);
  };
  return { log: { ...log, open }, stalled: stalled.promise, release: gate.resolve };
}

/**
 * Deletes a conversation while the server of its first message stalls, which then continues: before or after another caller
 * begins a conversation of the same id, or without that. Returns the messages of the next one, and the log's bounds in the end.
 */
export async function deleteDuringFirstMessage(
  servers: Servers,
  next: "before" | "after" | "never",
  chooseLog: (log: Log) => Log = (log) => log,
): Promise<{ messages: string[]; left: Bounds | undefined }> {
  const [first, second] = [testViewer({ subject: "first" }), testViewer({ subject: "second" })];
  const convId = `conv-${randomUUID()}`;
  const engine = engineOf(async function* () {});
  let stall: ReturnType<typeof stallFirstOpen> | undefined;
  const a = await servers.start({
    engine,
    wrapLog(log) {
      stall = stallFirstOpen(chooseLog(log));
      return stall.log;
    },
  });
  const b = await servers.start({ engine, wrapLog: chooseLog });
  const begin = async () => {
    await b.plane.chat(second, { convId, message: "mine" });
    await until("the end", async () => (await b.plane.run(second, convId))?.status === "finished");
  };
  const sent = a.plane.chat(first, { convId, message: "secret" }).catch(() => undefined);
  await stall!.stalled;
  await b.plane.remove(first, convId);
  if (next === "before") await begin();
  stall!.release();
  await sent;
  if (next === "after") await begin();
  const state = next === "never" ? {} : await b.plane.state(second, convId);
  const [left] = await chooseLog(b.log).bounds([`chat:${convId}`]);
  return { messages: (state.messages ?? []).map(({ parts }) => parts![0]!.text ?? ""), left };
}

/** The entries of a conversation's log. */
export async function eventsOf(log: Log, convId: string): Promise<TimelineEvent[]> {
  const page = await log.read(`chat:${convId}`, { seq: 0n, time: 0 }, { entries: 10_000, bytes: 64 << 20 });
  return (page?.entries ?? []).map(readEntry);
}

/** The kinds of events of a run, in order. */
export async function kindsOf(log: Log, convId: string, runId?: string): Promise<string[]> {
  const events = await eventsOf(log, convId);
  return events.filter((of) => !runId || of.runId === runId).map(({ event }) => Object.keys(event)[0]!);
}

/** The text that an answer came to. */
export function answerOf(events: readonly TimelineEvent[]): string {
  return events.map(({ event }) => event.text_delta?.text ?? "").join("");
}

/** Whether the run has ended in the log. */
export async function endOf(log: Log, convId: string, runId: string): Promise<EventJson | undefined> {
  const events = await eventsOf(log, convId);
  return events.find(
    ({ runId: of, event }) => of === runId && (event.run_finished ?? event.run_failed ?? event.run_stopped),
  )?.event;
}

/** An engine of one function, for every conversation the same. */
export function engineOf(run: Engine["run"]): EngineFactory {
  return () => ({ run });
}

/** An engine that emits a word, and then waits for the test to release it, or for the signal. */
export class GatedEngine {
  readonly started: string[] = [];
  readonly #gates = new Map<string, () => void>();

  readonly factory: EngineFactory = () => ({ run: (turn, signal) => this.#run(turn.message, signal) });

  /** Lets the answer to a message end. */
  release(message: string): void {
    this.#gates.get(message)!();
  }

  async *#run(message: string, signal: AbortSignal): AsyncGenerator<EngineEvent> {
    const gate = Promise.withResolvers<void>();
    this.#gates.set(message, gate.resolve);
    this.started.push(message);
    signal.addEventListener("abort", () => gate.resolve(), { once: true });
    if (signal.aborted) gate.resolve();
    yield { text_delta: { text: `${message}: ` } };
    await gate.promise;
    yield { text_delta: { text: "done" } };
  }
}
