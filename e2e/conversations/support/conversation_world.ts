import { topicForConv } from "@khala/contracts";
import type { EventJson } from "@khala/contracts/conversation/v1";
import { testContext } from "@khala/test-support/kit/context";
import { until } from "@khala/test-support/kit/until";
import fc from "fast-check";
import { expect } from "vitest";
import { parseCursor } from "../../../packages/server/src/conversations/log/cursor.ts";
import type { Log, Position } from "../../../packages/server/src/conversations/log/log.ts";
import type { MessageRow } from "../../../packages/server/src/conversations/messages/message_row.ts";
import { conversationMetrics } from "../../../packages/server/src/conversations/metrics.ts";
import {
  Attachment,
  type LoadSnapshot,
  type StartPosition,
} from "../../../packages/server/src/conversations/timeline/attachment.ts";
import { openReaders, type Readers } from "../../../packages/server/src/conversations/timeline/readers.ts";
import { loadSnapshot } from "../../../packages/server/src/conversations/timeline/snapshot.ts";
import type { Context } from "../../../packages/server/src/kit/context.ts";
import { ConversationClient } from "./conversation_client.ts";

/** Two servers' handles on one store. */
export interface TwoLogs extends AsyncDisposable {
  readonly logs: readonly [Log, Log];
}

export type Command =
  | { readonly do: "say"; readonly pieces: readonly string[] }
  | { readonly do: "end" }
  | {
      readonly do: "attach";
      readonly client: number;
      readonly server: number;
      readonly how: "fresh" | "resume" | "replay";
    }
  | { readonly do: "detach"; readonly client: number }
  | { readonly do: "fill"; readonly client: number }
  | { readonly do: "crash"; readonly server: number }
  | { readonly do: "deafen"; readonly server: number; readonly deaf: boolean }
  | { readonly do: "trim"; readonly entries: number }
  | { readonly do: "store" }
  | { readonly do: "lose" }
  | { readonly do: "delete" };

const client = fc.nat(4);
const server = fc.nat(1);
const attach = fc.record({
  do: fc.constant("attach" as const),
  client,
  server,
  how: fc.constantFrom("fresh" as const, "resume" as const, "resume" as const, "replay" as const),
});
const say = fc.record({
  do: fc.constant("say" as const),
  pieces: fc.array(fc.string({ unit: "grapheme", minLength: 1, maxLength: 8 }), {
    minLength: 1,
    maxLength: 6,
  }),
});

/** What may happen, what is common more often. */
export const commands = fc.array(
  fc.oneof(
    { weight: 8, arbitrary: say },
    { weight: 6, arbitrary: attach },
    { weight: 2, arbitrary: fc.record({ do: fc.constant("end" as const) }) },
    { weight: 2, arbitrary: fc.record({ do: fc.constant("detach" as const), client }) },
    { weight: 1, arbitrary: fc.record({ do: fc.constant("fill" as const), client }) },
    { weight: 1, arbitrary: fc.record({ do: fc.constant("crash" as const), server }) },
    {
      weight: 1,
      arbitrary: fc.record({ do: fc.constant("deafen" as const), server, deaf: fc.boolean() }),
    },
    {
      weight: 1,
      arbitrary: fc.record({ do: fc.constant("trim" as const), entries: fc.integer({ min: 1, max: 10 }) }),
    },
    { weight: 2, arbitrary: fc.record({ do: fc.constant("store" as const) }) },
    { weight: 1, arbitrary: fc.record({ do: fc.constant("lose" as const) }) },
    { weight: 1, arbitrary: fc.record({ do: fc.constant("delete" as const) }) },
  ),
  { minLength: 10, maxLength: 40 },
);

interface Said {
  firstSeq: bigint;
  text: string;
}

/** A conversation on two servers with a few clients, and what was really said in it. */
export class ConversationWorld {
  readonly #convId: string;
  readonly #logs: readonly Log[];
  readonly #context: Context;
  readonly #readers: (Readers | undefined)[] = [];
  readonly #deaf = [false, false];
  readonly #clients = Array.from({ length: 5 }, () => new ConversationClient());
  #said = new Map<string, Said>();
  /** The table of messages. */
  #rows: MessageRow[] = [];
  #head: Position = { seq: 0n, time: 0 };
  #seq = 0n;
  #epoch: string | undefined;
  #run: { runId: string; messageId: string } | undefined;
  #count = 0;

  private constructor(convId: string, logs: readonly Log[], context: Context) {
    this.#convId = convId;
    this.#logs = logs;
    this.#context = context;
  }

  static async open(convId: string, { logs }: TwoLogs, seed: number): Promise<ConversationWorld> {
    return new ConversationWorld(convId, logs, await testContext({ seed }));
  }

  async run(command: Command): Promise<void> {
    switch (command.do) {
      case "say":
        return this.#say(command.pieces);
      case "end":
        return this.#end();
      case "attach":
        return this.#attach(this.#clients[command.client]!, command.server, command.how);
      case "detach":
        return this.#clients[command.client]!.detach();
      case "fill":
        this.#clients[command.client]!.full = true;
        return;
      case "crash":
        return this.#crash(command.server);
      case "deafen":
        this.#deaf[command.server] = command.deaf;
        return;
      case "trim":
        // As the janitor, which keeps what is not stored.
        this.#store();
        await this.#logs[0]!.trim(this.#stream, { entries: command.entries });
        return;
      case "store":
        return this.#store();
      case "lose":
        return this.#lose();
      case "delete":
        await this.#logs[0]!.delete(this.#stream);
        this.#said = new Map();
        this.#rows = [];
        this.#seq = 0n;
        this.#epoch = undefined;
        this.#run = undefined;
    }
  }

  /** Everybody who is attached has the log's text; everybody else comes back and has it too. */
  async settle(): Promise<void> {
    await this.#end();
    for (const each of this.#clients) {
      each.full = false;
      // As an outbox does when it has drained.
      each.attachment?.drained();
      if (each.cursor !== undefined && !each.attachment) await this.#attach(each, 0, "resume");
    }
    for (const each of this.#clients) {
      if (each.cursor === undefined) continue;
      await until("every client is at the head", async () => {
        if (each.failure) throw each.failure;
        // A conversation that was deleted under a socket closes it; the client comes back.
        if (!each.attachment) await this.#attach(each, 1, "resume");
        return (
          each.seq === this.#seq && (this.#epoch === undefined || each.cursor!.startsWith(`${this.#epoch}.`))
        );
      });
      this.#check(each);
    }
    for (const readers of this.#readers) await readers?.stop();
  }

  #check(each: ConversationClient): void {
    for (const [id, { text }] of each.messages) {
      const said = this.#said.get(id)!;
      expect(said, `${id} was said`).toBeDefined();
      expect(text).toBe(said.text);
    }
    for (const [id, { firstSeq }] of this.#said) {
      if (firstSeq > each.completeAfter) expect(each.messages.has(id), `${id} is known`).toBe(true);
    }
  }

  get #stream(): string {
    return topicForConv(this.#convId);
  }

  async #say(pieces: readonly string[]): Promise<void> {
    const events: EventJson[] = [];
    if (!this.#run) {
      const n = ++this.#count;
      this.#run = { runId: `run-${n}`, messageId: `message-${n}` };
      events.push({ run_started: { subject: "ann" } });
    }
    const { messageId } = this.#run;
    for (const text of pieces) events.push({ text_delta: { message_id: messageId, text } });
    await this.#append(events);
    const said = this.#said.get(messageId) ?? {
      firstSeq: this.#seq - BigInt(pieces.length) + 1n,
      text: "",
    };
    this.#said.set(messageId, { ...said, text: said.text + pieces.join("") });
  }

  /** What a run's server does now and then, and before the end of the run. */
  #store(): void {
    const text = this.#run && this.#said.get(this.#run.messageId)?.text;
    if (!this.#run || text === undefined) return;
    const { runId, messageId } = this.#run;
    const before = this.#rows.filter(({ message_id }) => message_id !== messageId);
    const row: MessageRow = {
      message_id: messageId,
      parent_id: before.at(-1)?.message_id ?? null,
      role: "assistant",
      author: null,
      run_id: runId,
      parts: [{ text }],
      status: "streaming",
      created_at: "2026-11-18T08:00:00.000Z",
      log_epoch: this.#epoch!,
      log_seq: this.#head.seq,
      log_time: BigInt(this.#head.time),
    };
    this.#rows = [...before, row];
  }

  /** The log is lost, as by FLUSHALL: the run continues in a new one, after its messages were stored there. */
  async #lose(): Promise<void> {
    const [log] = this.#logs;
    this.#store();
    await log!.delete(this.#stream);
    const { epoch, head } = await log!.open(this.#stream, 0n);
    this.#epoch = epoch;
    this.#head = head;
    this.#seq = head.seq;
    for (const said of this.#said.values()) said.firstSeq = 0n;
    this.#store();
  }

  async #end(): Promise<void> {
    if (!this.#run) return;
    this.#store();
    await this.#append([{ run_finished: {} }]);
    this.#rows = this.#rows.map((row) => ({ ...row, status: "done" }));
    this.#run = undefined;
  }

  async #append(events: readonly EventJson[]): Promise<void> {
    const entries = events.map((event) => JSON.stringify({ run_id: this.#run!.runId, event }));
    const log = this.#logs[this.#count % 2]!;
    const { head, epoch } = await log.append(this.#stream, entries);
    this.#seq = head.seq;
    this.#head = head;
    this.#epoch = epoch;
  }

  #readersOf(server: number): Readers {
    let readers = this.#readers[server];
    if (!readers) {
      readers = openReaders(this.#context, {
        log: this.#hearing(server),
        metrics: conversationMetrics(this.#context.telemetry.meter),
        serverId: `server-${server}`,
        isDeleted: async () => false,
        recentBytes: 600,
        graceMs: 20,
        pollMs: 20,
        bookmarkMs: 20,
      });
      this.#readers[server] = readers;
    }
    return readers;
  }

  /** The server's log, which tells nothing of news while the server is deaf. */
  #hearing(server: number): Log {
    const log = this.#logs[server]!;
    const watch: Log["watch"] = (stream, watcher) =>
      log.watch(stream, {
        position: () => watcher.position?.(),
        appended: (appended) => {
          if (!this.#deaf[server]) watcher.appended(appended);
        },
        missed: () => {
          if (!this.#deaf[server]) watcher.missed();
        },
      });
    return new Proxy(log, {
      get: (target, name) => {
        if (name === "watch") return watch;
        const value = Reflect.get(target, name);
        return typeof value === "function" ? value.bind(target) : value;
      },
    });
  }

  async #attach(each: ConversationClient, server: number, how: "fresh" | "resume" | "replay"): Promise<void> {
    each.detach();
    each.full = false;
    if (how !== "resume" || each.cursor === undefined) each.forget();
    const start: StartPosition =
      each.cursor !== undefined
        ? { kind: "after", cursor: parseCursor(each.cursor, "after") }
        : how === "replay"
          ? { kind: "replay", messages: 2 }
          : { kind: "now" };
    // The streams of this world are written without any conversation: they have the first generation.
    const of = { org: "acme", convId: this.#convId, logName: topicForConv(this.#convId), generation: 0n };
    const { reader, release } = await this.#readersOf(server).acquire(of);
    const tail = async () => ({ rows: structuredClone(this.#rows), activeRun: this.#run?.runId ?? null });
    const load: LoadSnapshot = (messages = 100) =>
      loadSnapshot(reader, { tail }, of, { messages, bytes: Number.POSITIVE_INFINITY });
    const attachment = new Attachment(
      of,
      reader,
      load,
      each,
      this.#context,
      conversationMetrics(this.#context.telemetry.meter),
    );
    each.attachment = attachment;
    each.server = server;
    each.release = release;
    const run = this.#run && { run_id: this.#run.runId, status: "running" };
    await attachment.begin(start, async () => ({ run: run ?? null, queued: [] }));
  }

  async #crash(server: number): Promise<void> {
    const readers = this.#readers[server];
    this.#readers[server] = undefined;
    await readers?.stop();
    for (const each of this.#clients) if (each.server === server) each.detach();
  }
}
