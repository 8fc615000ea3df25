import { once } from "node:events";
import type { IncomingMessage } from "node:http";
import { WebSocket } from "ws";
import { Changes, until } from "../kit/until.ts";
import { Refused } from "./clients.ts";
import { type TimelineJson, TimelineView } from "./timeline_view.ts";

const DEADLINE_MS = 20_000;

/** A client of `/ws` that records everything that it receives. */
export class TimelineSocket extends Changes implements AsyncDisposable {
  readonly ws: WebSocket;
  readonly frames: TimelineJson[] = [];
  /** The text of each frame, in order of arrival. */
  readonly raw: string[] = [];
  readonly view = new TimelineView();
  closed: { code: number; reason: string } | undefined;

  private constructor(ws: WebSocket) {
    super();
    this.ws = ws;
    ws.on("message", (data: Buffer) => {
      const frame = JSON.parse(String(data)) as TimelineJson;
      this.raw.push(String(data));
      this.frames.push(frame);
      this.view.apply(frame);
      this.changed();
    });
    ws.on("close", (code, reason) => {
      this.closed = { code, reason: String(reason) };
      this.changed();
    });
    // The close event follows.
    ws.on("error", () => {});
  }

  /** Connects without waiting for the first frame; rejects with Refused. */
  static async connect(
    url: string,
    params: Readonly<Record<string, string>>,
    headers: Readonly<Record<string, string>> = {},
  ): Promise<TimelineSocket> {
    const ws = new WebSocket(`${url}?${new URLSearchParams(params)}`, {
      perMessageDeflate: false,
      handshakeTimeout: 30_000,
      headers,
    });
    const client = new TimelineSocket(ws);
    await new Promise<void>((resolve, reject) => {
      ws.once("open", resolve);
      ws.once("error", reject);
      ws.once("unexpected-response", (_request, response: IncomingMessage) => {
        let text = "";
        response.setEncoding("utf8").on("data", (chunk: string) => {
          text += chunk;
        });
        response.on("close", () => reject(new Refused(response.statusCode!, text)));
      });
    });
    return client;
  }

  send(message: object | string): void {
    this.ws.send(typeof message === "string" ? message : JSON.stringify(message));
  }

  /** The types of the received frames, without heartbeats. */
  get types(): string[] {
    return this.frames.map(({ type }) => type).filter((type) => type !== "heartbeat");
  }

  /** The bytes of the events, in order. */
  get events(): string[] {
    return this.raw.filter((_, i) => this.frames[i]!.type === "event");
  }

  /** Waits for a frame. */
  frame(what: string, matches: (frame: TimelineJson) => unknown): Promise<TimelineJson> {
    return until(what, () => this.frames.find(matches), { on: this, deadlineMs: DEADLINE_MS });
  }

  /** Waits for the first frame of a type. */
  first(type: string): Promise<TimelineJson> {
    return this.frame(`a frame of type ${type}`, (frame) => frame.type === type);
  }

  /** Waits until a run has ended, with any outcome. */
  runEnded(runId: string): Promise<TimelineJson> {
    return this.frame("the end of the run", ({ run_id, event }) => {
      return run_id === runId && (event?.run_finished || event?.run_failed || event?.run_stopped);
    });
  }

  /** Waits until the socket is closed. */
  ended(): Promise<{ code: number; reason: string }> {
    return until("the socket's end", () => this.closed, { on: this, deadlineMs: DEADLINE_MS });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.ws.readyState === WebSocket.CLOSED) return;
    const gone = once(this.ws, "close");
    this.ws.terminate();
    await gone;
  }
}
