import { setTimeout as delay } from "node:timers/promises";
import { AuthSchema, HeartbeatSchema, SubscribeSchema } from "@khala/contracts/sync/v1";
import { WitnessHttp, type WitnessHttpOptions } from "./witness_http.ts";
import { type Listed, type SavedView, WitnessView } from "./witness_view.ts";
import {
  type Cursor,
  type Encoding,
  type WireMessage,
  type WireUpdate,
  WitnessSocket,
} from "./witness_wire.ts";

export interface WitnessOptions extends WitnessHttpOptions {
  readonly org: string;
  readonly subject: string;
  readonly topics: readonly string[];
  readonly encoding?: Encoding;
  /** The saved state of an earlier witness, from which it continues. */
  readonly saved?: SavedWitness;
  /** Starts by asking for everything that is retained, instead of with a list. */
  readonly fromStart?: boolean;
  /** Called after each batch is applied. */
  readonly onBatch?: (topic: string) => void;
}

/** The persisted state of a witness: the view of each topic. */
export type SavedWitness = Readonly<Record<string, SavedView>>;

const BEAT_MS = 100;
/** A gateway that leaves this many heartbeats unanswered counts as dead. */
const MOST_UNANSWERED = 30;

/** The id of a stream, which contains its owner; every document's key contains the id. */
export function ownedId(org: string, owner: string, name: string): string {
  return `${org}.${owner}.${name}`;
}

/** The org and the owner in a document's key. */
function ownerOf(docKey: string): { org: string; owner: string } {
  const [, org = "", owner = ""] = /(?:^|:)([\w-]+)\.([\w-]+)\.[\w-]+/.exec(docKey) ?? [];
  return { org, owner };
}

/**
 * A client that keeps its own copy, reconnects by itself to any gateway, and records every broken promise:
 * order, progress, access, and, whenever its position equals that of a list, completeness.
 */
export class Witness {
  readonly name: string;
  readonly violations: string[] = [];
  /** Every stale_cursor answer. */
  readonly stales: { topic: string; sent: Cursor; floor: Cursor }[] = [];
  /** The close code of each connection that ended. */
  readonly closes: number[] = [];
  /** Error codes that came as frames. */
  readonly errors: string[] = [];
  readonly #options: WitnessOptions;
  readonly #http: WitnessHttp;
  readonly #views: Map<string, WitnessView>;
  #stopping = new AbortController();
  #started = false;
  /** Whether a connection is being opened with a token that is not the newest. */
  #outdated = false;
  #running: Promise<void> = Promise.resolve();
  #socket: WitnessSocket | undefined;
  /** The reason it is not connected, when it is not. */
  trouble = "";

  constructor(options: WitnessOptions) {
    this.#options = options;
    this.#http = new WitnessHttp(options);
    this.name = `${options.subject} of ${options.org}`;
    this.#views = new Map(options.topics.map((topic) => [topic, this.#viewOf(topic)]));
  }

  #viewOf(topic: string): WitnessView {
    const { org, subject, saved } = this.#options;
    const mayBeTold = ({ docKey, payload }: WireUpdate) => {
      const named = ownerOf(docKey);
      if (named.org !== org || (topic === "runtime.notifications" && named.owner !== subject)) return false;
      const { audience = [] } = JSON.parse(payload ?? "{}") as { audience?: string[] };
      return audience.length === 0 || audience.includes(subject);
    };
    return new WitnessView(topic, mayBeTold, (what) => this.violations.push(what), saved?.[topic]);
  }

  view(topic: string): WitnessView {
    return this.#views.get(topic)!;
  }

  get views(): readonly WitnessView[] {
    return [...this.#views.values()];
  }

  /** Whether it should be connected. */
  get started(): boolean {
    return this.#started;
  }

  get connected(): boolean {
    return this.#socket !== undefined;
  }

  /** Connects, and again whenever the connection ends, until `stop`. */
  start(): this {
    this.#started = true;
    this.#stopping = new AbortController();
    this.#running = this.#run(this.#stopping.signal);
    return this;
  }

  /** Breaks the connection without closing it, and stays away. */
  async stop(): Promise<void> {
    this.#started = false;
    this.#stopping.abort();
    this.#socket?.terminate();
    await this.#running;
  }

  /** Breaks the connection without closing it, and reconnects. */
  drop(): void {
    this.#socket?.terminate();
  }

  pause(): void {
    this.#socket?.pause();
  }

  resume(): void {
    this.#socket?.resume();
  }

  /** Its rights changed: sends a new token on the open socket, or on the one being opened. */
  async reauthenticate(): Promise<void> {
    this.#outdated = true;
    const token = await this.#options.token();
    this.#socket?.push("auth", AuthSchema, { token }, { token });
  }

  /** Its state, for the report of a failure. */
  describe(): string {
    const state = this.connected ? "connected" : `away (${this.trouble})`;
    const views = this.views.map(({ topic, cursor, live, replaying }) => {
      const place = cursor ? `${cursor.epoch}/${cursor.watermark}` : "nowhere";
      return `${topic} at ${place}${live ? ", live" : replaying ? ", replaying" : ""}`;
    });
    return [`${this.name} is ${state}`, ...views, ...this.violations].join("\n  ");
  }

  save(): SavedWitness {
    return Object.fromEntries(this.views.map((view) => [view.topic, view.save()]));
  }

  async #run(signal: AbortSignal): Promise<void> {
    const { random } = this.#options;
    while (!signal.aborted) {
      try {
        await this.#session(signal);
      } catch (error) {
        this.trouble = (error as Error).message;
      }
      for (const view of this.views) view.end();
      // With jitter, as a fleet of clients needs.
      if (!signal.aborted) await delay(20 + random() * 80);
    }
  }

  async #session(signal: AbortSignal): Promise<void> {
    const heard: WireMessage[] = [];
    let wake = () => {};
    const url = this.#http.anyUrl();
    const { token, encoding = "json" } = this.#options;
    this.#outdated = false;
    const socket = await WitnessSocket.open(url, await token(), encoding, (message) => {
      heard.push(message);
      wake();
    });
    const beat = setInterval(() => {
      if (socket.paused) return;
      if (++socket.unanswered > MOST_UNANSWERED) return socket.terminate();
      socket.push("heartbeat", HeartbeatSchema, {}, {});
    }, BEAT_MS);
    this.#socket = socket;
    const begins = new Map<string, Map<string, Cursor>>();
    try {
      if (this.#outdated) await this.reauthenticate();
      await this.#subscribe(socket, this.views, begins);
      while (!signal.aborted) {
        const message = heard.shift();
        if (!message) {
          await new Promise<void>((resolve) => {
            wake = resolve;
          });
        } else if (message.kind === "closed") {
          this.closes.push(message.code);
          return;
        } else await this.#hear(socket, message, begins);
      }
    } finally {
      clearInterval(beat);
      this.#socket = undefined;
      socket.terminate();
    }
  }

  /** Follows topics from its position; without a position it lists first. */
  async #subscribe(
    socket: WitnessSocket,
    views: readonly WitnessView[],
    begins: Map<string, Map<string, Cursor>>,
  ): Promise<void> {
    const from = new Map<string, Cursor>();
    for (const view of views) {
      const everything = this.#options.fromStart && this.stales.length === 0;
      if (!view.cursor && !everything) view.reset(await this.list(view.topic));
      from.set(view.topic, view.cursor ?? { epoch: "", watermark: 0n });
    }
    const topics = [...from.keys()];
    const resume_after = Object.fromEntries(
      [...from].map(([topic, { epoch, watermark }]) => [topic, { epoch, watermark: String(watermark) }]),
    );
    const init = { topics, resumeAfter: Object.fromEntries(from) };
    begins.set(socket.push("subscribe", SubscribeSchema, init, { topics, resume_after }), from);
  }

  async #hear(
    socket: WitnessSocket,
    message: WireMessage,
    begins: Map<string, Map<string, Cursor>>,
  ): Promise<void> {
    switch (message.kind) {
      case "reply": {
        if (!message.ok) throw new Error(`refused: ${message.reason}`);
        const begun = begins.get(message.ref);
        for (const [topic, from] of begun ?? []) this.view(topic).begin(from);
        if (!begun) this.#progress(message.positions);
        return;
      }
      case "heartbeat":
        return this.#progress(message.positions);
      case "batch":
        await this.view(message.topic).apply(message, (docKey) => this.#http.document(docKey));
        this.#options.onBatch?.(message.topic);
        return;
      case "error": {
        this.errors.push(message.code);
        this.stales.push(...message.topics);
        const views = message.topics.map(({ topic }) => this.view(topic));
        for (const view of views) view.forget();
        if (views.length > 0) await this.#subscribe(socket, views, begins);
      }
    }
  }

  #progress(positions: Readonly<Record<string, Cursor>>): void {
    for (const [topic, position] of Object.entries(positions)) this.view(topic).progress(position);
  }

  /** A new list of a topic, all pages, from any gateway. */
  list(topic: string): Promise<Listed> {
    return this.#http.list(topic);
  }
}
