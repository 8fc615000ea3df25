import { setTimeout as delay } from "node:timers/promises";
import { AuthSchema, HeartbeatSchema, SubscribeSchema } from "@khala/contracts/sync/v1";
import type { Random } from "../../packages/server/src/kit/ids.ts";
import { type HeldDocument, type Listed, type SavedView, WitnessView } from "./witness_view.ts";
import {
  type Cursor,
  cursorOf,
  type Encoding,
  type WireMessage,
  WitnessSocket,
  type WireUpdate,
} from "./witness_wire.ts";

export interface WitnessOptions {
  readonly org: string;
  readonly subject: string;
  readonly topics: readonly string[];
  /** The gateways; it connects to any of them. */
  readonly urls: () => readonly string[];
  /** A token for the org and subject, fresh for every connection and request. */
  readonly token: () => Promise<string>;
  readonly random: Random;
  readonly encoding?: Encoding;
  /** What an earlier witness saved: it goes on from there. */
  readonly saved?: SavedWitness;
  /** Starts by asking for all that is retained, instead of with a list. */
  readonly fromStart?: boolean;
  /** Called after each batch is applied. */
  readonly onBatch?: (topic: string) => void;
}

/** What a witness persists: the view of each topic. */
export type SavedWitness = Readonly<Record<string, SavedView>>;

const BEAT_MS = 100;
/** A gateway that is silent for so long is taken for dead. */
const SILENCE_MS = 3_000;

/** The id of a stream, which tells whose it is: every document's key contains it. */
export function ownedId(org: string, owner: string, name: string): string {
  return `${org}.${owner}.${name}`;
}

/** The org and the owner that a document's key names. */
export function ownerOf(docKey: string): { org: string; owner: string } {
  const [, org = "", owner = ""] = /(?:^|:)([\w-]+)\.([\w-]+)\.[\w-]+/.exec(docKey) ?? [];
  return { org, owner };
}

/**
 * A client that keeps its own copy, comes back by itself to any gateway, and takes down every promise that is broken:
 * order, progress, access, and, whenever it stands where a list does, completeness.
 */
export class Witness {
  readonly name: string;
  readonly violations: string[] = [];
  /** Every stale_cursor answer that it got. */
  readonly stales: { topic: string; sent: Cursor; floor: Cursor }[] = [];
  /** The close code of each connection that ended. */
  readonly closes: number[] = [];
  /** Error codes that came as frames. */
  readonly errors: string[] = [];
  readonly #options: WitnessOptions;
  readonly #views: Map<string, WitnessView>;
  #stopping = new AbortController();
  #started = false;
  /** The token that a connection is being opened with is not the newest. */
  #outdated = false;
  #running: Promise<void> = Promise.resolve();
  #socket: WitnessSocket | undefined;
  /** Why it is not connected, when it is not. */
  trouble = "";

  constructor(options: WitnessOptions) {
    this.#options = options;
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

  /** Whether it is meant to be connected. */
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

  /** Breaks the connection without a word and stays away. */
  async stop(): Promise<void> {
    this.#started = false;
    this.#stopping.abort();
    this.#socket?.terminate();
    await this.#running;
  }

  /** Breaks the connection without a word; it comes back. */
  drop(): void {
    this.#socket?.terminate();
  }

  pause(): void {
    this.#socket?.pause();
  }

  resume(): void {
    this.#socket?.resume();
  }

  /** Its rights changed: shows a fresh token on the open socket, or on the one that is being opened. */
  async reauthenticate(): Promise<void> {
    this.#outdated = true;
    const token = await this.#options.token();
    this.#socket?.push("auth", AuthSchema, { token }, { token });
  }

  /** How it is, for the report of a failure. */
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
      // Spread out, as a fleet of clients must be.
      if (!signal.aborted) await delay(20 + random() * 80);
    }
  }

  async #session(signal: AbortSignal): Promise<void> {
    const heard: WireMessage[] = [];
    let wake = () => {};
    const url = this.#anyUrl();
    const { token, encoding = "json" } = this.#options;
    this.#outdated = false;
    const socket = await WitnessSocket.open(url, await token(), encoding, (message) => {
      heard.push(message);
      wake();
    });
    const beat = setInterval(() => {
      if (socket.paused) return;
      if (Date.now() - socket.heardAt > SILENCE_MS) return socket.terminate();
      socket.push("heartbeat", HeartbeatSchema, {}, {});
    }, BEAT_MS);
    this.#socket = socket;
    if (this.#outdated) await this.reauthenticate();
    const begins = new Map<string, Map<string, Cursor>>();
    try {
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

  /** Follows topics from where it stands; where it does not know, a list tells. */
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
        await this.view(message.topic).apply(message, (docKey) => this.#fetch(docKey));
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

  #anyUrl(): string {
    const urls = this.#options.urls();
    return urls[Math.floor(this.#options.random() * urls.length)]!;
  }

  /** A fresh list of a topic, all pages, asked of any gateway. */
  async list(topic: string): Promise<Listed> {
    const documents = new Map<string, HeldDocument>();
    const url = this.#anyUrl();
    let cursor: Cursor | undefined;
    let after = "";
    do {
      const page = (await this.#get(`${url}/sync/v1/list/${topic}?limit=1000${after}`)) as ListJson;
      for (const document of page.documents) documents.set(document.doc_key, heldOf(document));
      // The first page's position: what changes while the others are read comes again.
      cursor ??= cursorOf(page.cursor);
      after = page.next === null ? "" : `&after=${page.next}`;
    } while (after);
    return { documents, cursor };
  }

  async #fetch(docKey: string): Promise<HeldDocument | undefined> {
    const url = `${this.#anyUrl()}/sync/v1/doc/${encodeURIComponent(docKey)}`;
    const document = (await this.#get(url)) as DocumentJson | undefined;
    return document && heldOf(document);
  }

  async #get(url: string): Promise<unknown> {
    const response = await fetch(url, {
      headers: { authorization: `Bearer ${await this.#options.token()}` },
      signal: AbortSignal.timeout(5_000),
    });
    if (response.status === 404) return undefined;
    if (!response.ok) throw new Error(`${response.status} ${await response.text()}`);
    return response.json();
  }
}

interface DocumentJson {
  readonly doc_key: string;
  readonly doc_version: string;
  readonly payload_hash: string;
}

interface ListJson {
  readonly documents: readonly DocumentJson[];
  readonly cursor: { readonly epoch: string; readonly watermark: string };
  readonly next: string | null;
}

function heldOf({ doc_version, payload_hash }: DocumentJson): HeldDocument {
  return { version: BigInt(doc_version), hash: payload_hash };
}
