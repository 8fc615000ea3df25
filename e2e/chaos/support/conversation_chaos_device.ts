import { setTimeout as delay } from "node:timers/promises";
import { seqOf, type TimelineJson, TimelineView } from "@khala/test-support/clients/timeline_view";
import { WebSocket } from "ws";

export interface DeviceOptions {
  readonly convId: string;
  readonly token: string;
  /** Where it may connect to. */
  readonly urls: () => readonly string[];
  /** Which of them it tries first. */
  readonly home: number;
}

const HANDSHAKE_MS = 10_000;
const FIRST_PAUSE_MS = 50;
const LONGEST_PAUSE_MS = 500;

/** A tab on `/ws` that does what docs/protocol/CONVERSATIONS.md asks of a client, and notes what the server does wrong. */
export class Device {
  readonly convId: string;
  view = new TimelineView();
  /** How each run ended: one entry each, if all is well. */
  readonly ends = new Map<string, string[]>();
  /** Where and how its connections ended. */
  readonly closes: { readonly url: string; readonly code: number }[] = [];
  /** The reasons of the resyncs that it was sent. */
  readonly resyncs: string[] = [];
  readonly wrong: string[] = [];
  /** The server that it is connected to. */
  url: string | undefined;
  readonly #options: DeviceOptions;
  #stopping = new AbortController();
  #ws: WebSocket | undefined;
  #running: Promise<void> = Promise.resolve();

  constructor(options: DeviceOptions) {
    this.#options = options;
    this.convId = options.convId;
  }

  /** Connects, also when it was stopped: then it goes on from its cursor. */
  start(): void {
    this.#stopping = new AbortController();
    this.#running = this.#stay();
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    this.#ws?.terminate();
    await this.#running;
  }

  /** The sequence of the last event that it has. */
  get seq(): bigint {
    return this.view.cursor === undefined ? 0n : seqOf(this.view.cursor);
  }

  /** How many characters it has of everything that was said. */
  get length(): number {
    return this.view.texts.values().reduce((sum, text) => sum + text.length, 0);
  }

  describe(): string {
    const { convId, url, seq, closes, resyncs } = this;
    const wrong = [...this.wrong, ...this.view.wrong];
    return `${convId} on ${url} at ${seq}: ${JSON.stringify({ closes, resyncs, wrong })}`;
  }

  /** Connects, and connects again to the next server whenever the connection is lost. */
  async #stay(): Promise<void> {
    const { signal } = this.#stopping;
    for (let at = this.#options.home, failures = 0; !signal.aborted; at++) {
      const urls = this.#options.urls();
      const url = urls[at % urls.length]!;
      const { code, greeted } = await this.#follow(url);
      this.url = undefined;
      this.closes.push({ url, code });
      if (code >= 4400 && code <= 4499) {
        this.wrong.push(`closed for good with ${code}`);
        return;
      }
      failures = greeted ? 0 : failures + 1;
      const pause = Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** failures);
      await delay(pause, undefined, { signal }).catch(() => {});
    }
  }

  /** One connection, until it ends. */
  #follow(url: string): Promise<{ code: number; greeted: boolean }> {
    const { convId, token } = this.#options;
    const { cursor } = this.view;
    const params = new URLSearchParams({ conv_id: convId, token, ...(cursor && { after: cursor }) });
    const ws = new WebSocket(`${url.replace("http", "ws")}/ws?${params}`, {
      perMessageDeflate: false,
      handshakeTimeout: HANDSHAKE_MS,
    });
    this.#ws = ws;
    let greeted = false;
    ws.on("message", (data: Buffer) => {
      const frame = JSON.parse(String(data)) as TimelineJson;
      if (frame.type === "hello") {
        greeted = true;
        this.url = url;
      }
      this.#take(frame);
    });
    // A close follows.
    ws.on("error", () => {});
    return new Promise((resolve) => ws.on("close", (code) => resolve({ code, greeted })));
  }

  #take(frame: TimelineJson): void {
    if (frame.type === "resync") this.resyncs.push(frame.reason!);
    if (frame.type === "heartbeat" && seqOf(frame.cursor!) !== this.seq)
      this.wrong.push(`a heartbeat says ${seqOf(frame.cursor!)} at ${this.seq}`);
    this.view.apply(frame);
    const { run_finished, run_failed, run_stopped } = frame.event ?? {};
    const end =
      (run_finished && "finished") ?? (run_failed && run_failed.code!) ?? (run_stopped && "stopped");
    if (end) this.ends.set(frame.run_id!, [...(this.ends.get(frame.run_id!) ?? []), end]);
  }
}
