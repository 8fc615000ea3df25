import { once } from "node:events";
import type { IncomingMessage } from "node:http";
import { fromBinary, toJson } from "@bufbuild/protobuf";
import { phoenix } from "@khala/contracts";
import { FrameSchema } from "@khala/contracts/sync/v1";
import { WebSocket } from "ws";
import { Changes, until } from "../kit/until.ts";

export { until } from "../kit/until.ts";

/** A frame as it came over the wire. */
export interface Received {
  readonly joinRef: string | null;
  readonly ref: string | null;
  readonly topic: string;
  readonly event: string;
  readonly payload: unknown;
  /** The bytes of the whole message. */
  readonly raw: Buffer;
  readonly binary: boolean;
}

/** The reply to a push. */
export interface Answer<T = Record<string, unknown>> {
  readonly status: string;
  readonly response: T;
}

/** A cursor as it is on the wire. */
export interface Cursor {
  readonly epoch?: string;
  readonly watermark?: string;
}

export interface Update {
  readonly topic: string;
  readonly doc_key: string;
  readonly doc_version: string;
  readonly op: "upsert" | "delete";
  /** The document, or base64 when the encoding is proto. */
  readonly payload?: unknown;
  readonly payload_hash?: string;
  readonly watermark: string;
  readonly fetch_required?: boolean;
}

export interface Batch {
  readonly topic: string;
  readonly updates?: readonly Update[];
  readonly through: Cursor;
  readonly replay_complete?: boolean;
}

/** The server's pushes on the sync channel. */
export interface SyncFrame {
  readonly update_batch?: Batch;
  readonly heartbeat?: { readonly watermarks?: Readonly<Record<string, Cursor>> };
  readonly error?: {
    readonly code: string;
    readonly message: string;
    readonly topics?: readonly { topic: string; sent: Cursor; floor: Cursor }[];
  };
}

/** The answer to a refused handshake. */
export class Refused extends Error {
  readonly status: number;
  readonly body: { error?: { code?: string; message?: string } };

  constructor(status: number, text: string) {
    super(`The handshake was refused with ${status}: ${text}`);
    this.status = status;
    this.body = text ? JSON.parse(text) : {};
  }
}

export interface RawOptions {
  readonly token?: string;
  /** Replaces the whole query. */
  readonly query?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly protocols?: readonly string[];
}

/** A WebSocket client that speaks Phoenix frames by hand and records everything that it receives. */
export class RawClient extends Changes implements AsyncDisposable {
  readonly ws: WebSocket;
  readonly received: Received[] = [];
  /** The frames of the sync channel, decoded from either encoding. */
  readonly frames: SyncFrame[] = [];
  closed: { code: number; reason: string } | undefined;
  #ref = 0;
  #joinRef: string | null = null;

  private constructor(ws: WebSocket) {
    super();
    this.ws = ws;
    ws.on("message", (data: Buffer, binary: boolean) => {
      const message = binary ? fromServerBinary(data) : phoenix.decodeText(String(data));
      this.received.push({ ...message, raw: data, binary });
      if (message.event === "frame") this.frames.push(syncFrame(message.payload));
      this.changed();
    });
    ws.on("close", (code, reason) => {
      this.closed = { code, reason: String(reason) };
      this.changed();
    });
    // The close event follows.
    ws.on("error", () => {});
  }

  /** Connects to an endpoint such as `ws://127.0.0.1:4000/socket`; rejects with Refused. */
  static async connect(
    endpoint: string,
    { token, query, headers, protocols = [] }: RawOptions,
  ): Promise<RawClient> {
    const params = query ?? new URLSearchParams({ ...(token && { token }), vsn: "2.0.0" }).toString();
    const ws = new WebSocket(`${endpoint}/websocket?${params}`, [...protocols], {
      perMessageDeflate: false,
      handshakeTimeout: 30_000,
      ...(headers && { headers }),
    });
    const client = new RawClient(ws);
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

  /** The update batches, in order. */
  get batches(): Batch[] {
    return this.frames.flatMap((frame) => frame.update_batch ?? []);
  }

  /** The updates of all batches, in order. */
  get updates(): Update[] {
    return this.batches.flatMap((batch) => batch.updates ?? []);
  }

  /** Sends any message. */
  send(data: string | Uint8Array): void {
    this.ws.send(data);
  }

  /** Sends a push without waiting; returns its ref. */
  cast(topic: string, event: string, payload: unknown = {}, joinRef = this.#joinRef): string {
    const ref = String(++this.#ref);
    const message = { joinRef: event === "phx_join" ? ref : joinRef, ref, topic, event, payload };
    if (event === "phx_join") this.#joinRef = ref;
    this.send(
      payload instanceof Uint8Array ? phoenix.encodeClientBinary(message) : phoenix.encodeText(message),
    );
    return ref;
  }

  /** Sends a push and waits for its reply. */
  async push<T = Record<string, unknown>>(
    topic: string,
    event: string,
    payload: unknown = {},
  ): Promise<Answer<T>> {
    const ref = this.cast(topic, event, payload);
    return until(`a reply to ${event}`, () => this.#answerTo<T>(ref), { on: this });
  }

  /** Joins `sync:v1`. */
  join(params: object = {}): Promise<Answer> {
    return this.push("sync:v1", "phx_join", params);
  }

  /** Subscribes on `sync:v1`; resolves with the current cursors. */
  async subscribe(
    topics: string | readonly string[],
    resumeAfter: Readonly<Record<string, Cursor>> = {},
  ): Promise<Record<string, Cursor>> {
    const payload = { topics: [topics].flat(), resume_after: resumeAfter };
    const { status, response } = await this.push<Subscribed>("sync:v1", "subscribe", payload);
    if (status !== "ok") throw new Error(`The subscribe was refused: ${JSON.stringify(response)}`);
    return response.current_watermarks;
  }

  /** Waits for a frame of the sync channel. */
  frame(what: string, matches: (frame: SyncFrame) => unknown): Promise<SyncFrame> {
    return until(what, () => this.frames.find(matches), { on: this });
  }

  /** Waits until the socket is closed. */
  ended(): Promise<{ code: number; reason: string }> {
    return until("the socket's end", () => this.closed, { on: this });
  }

  #answerTo<T>(ref: string): Answer<T> | undefined {
    if (this.closed) throw new Error(`The socket was closed with ${this.closed.code} before it answered.`);
    const reply = this.received.find((frame) => frame.event === "phx_reply" && frame.ref === ref);
    return reply?.payload as Answer<T> | undefined;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.ws.readyState === WebSocket.CLOSED) return;
    const gone = once(this.ws, "close");
    this.ws.terminate();
    await gone;
  }
}

interface Subscribed {
  readonly subscription_id: string;
  readonly current_watermarks: Record<string, Cursor>;
}

function fromServerBinary(data: Buffer): Omit<Received, "raw" | "binary"> {
  const frame = phoenix.decodeServerBinary(data);
  switch (frame.kind) {
    case "reply": {
      const payload = { status: frame.status, response: frame.data };
      return { joinRef: frame.joinRef, ref: frame.ref, topic: frame.topic, event: "phx_reply", payload };
    }
    case "push":
      return {
        joinRef: frame.joinRef,
        ref: null,
        topic: frame.topic,
        event: frame.event,
        payload: frame.data,
      };
    case "broadcast":
      return { joinRef: null, ref: null, topic: frame.topic, event: frame.event, payload: frame.data };
  }
}

function syncFrame(payload: unknown): SyncFrame {
  if (!(payload instanceof Uint8Array)) return payload as SyncFrame;
  return toJson(FrameSchema, fromBinary(FrameSchema, payload), { useProtoFieldName: true }) as SyncFrame;
}
