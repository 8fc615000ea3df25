import { create, type DescMessage, fromBinary, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import { phoenix, SYNC_CHANNEL } from "@khala/contracts";
import {
  type Cursor as CursorMessage,
  FrameSchema,
  HeartbeatSchema,
  SubscribedSchema,
} from "@khala/contracts/sync/v1";
import { WebSocket } from "ws";

/** A position as a client holds it. */
export interface Cursor {
  readonly epoch: string;
  readonly watermark: bigint;
}

/** An update as it came over the wire. */
export interface WireUpdate {
  readonly docKey: string;
  readonly docVersion: bigint;
  readonly op: string;
  /** The JSON text, or in JSON frames the text that it is parsed from and written again. */
  readonly payload: string | undefined;
  readonly hash: string | undefined;
  readonly watermark: bigint;
  readonly fetchRequired: boolean;
}

/** Messages of a server, in either encoding. */
export type WireMessage =
  | { kind: "reply"; ref: string; ok: boolean; positions: Record<string, Cursor>; reason: string }
  | { kind: "batch"; topic: string; updates: WireUpdate[]; through: Cursor; replayComplete: boolean }
  | { kind: "heartbeat"; positions: Record<string, Cursor> }
  | { kind: "error"; code: string; topics: { topic: string; sent: Cursor; floor: Cursor }[] }
  | { kind: "closed"; code: number };

export type Encoding = "json" | "proto";

interface JsonCursor {
  readonly epoch: string;
  readonly watermark?: string;
}

/** Reads a cursor of JSON; proto3 leaves out zeros. */
export function cursorOf({ epoch, watermark }: JsonCursor): Cursor {
  return { epoch, watermark: BigInt(watermark ?? 0) };
}

const cursors = (from: Readonly<Record<string, JsonCursor>> = {}) =>
  Object.fromEntries(Object.entries(from).map(([topic, cursor]) => [topic, cursorOf(cursor)]));
const protoCursors = (from: Readonly<Record<string, CursorMessage>>) =>
  Object.fromEntries(
    Object.entries(from).map(([topic, { epoch, watermark }]) => [topic, { epoch, watermark }]),
  );

/** One connection, joined to the sync channel, that passes on every message in order. */
export class WitnessSocket {
  readonly #ws: WebSocket;
  readonly #encoding: Encoding;
  readonly #onMessage: (message: WireMessage) => void;
  /** Which message a binary reply holds. */
  readonly #asked = new Map<string, "subscribe" | "heartbeat" | "auth">();
  #refs = 1;
  /** Heartbeats sent since the last message. */
  unanswered = 0;

  private constructor(ws: WebSocket, encoding: Encoding, onMessage: (message: WireMessage) => void) {
    this.#ws = ws;
    this.#encoding = encoding;
    this.#onMessage = onMessage;
  }

  /** Connects and joins. Messages go to `onMessage`, and at last the close of the connection. */
  static open(
    url: string,
    token: string,
    encoding: Encoding,
    onMessage: (message: WireMessage) => void,
  ): Promise<WitnessSocket> {
    const address = `${url.replace(/^http/, "ws")}/socket/websocket?vsn=2.0.0&token=${token}`;
    const ws = new WebSocket(address, { handshakeTimeout: 3_000, perMessageDeflate: false });
    const socket = new WitnessSocket(ws, encoding, onMessage);
    return new Promise((resolve, reject) => {
      ws.on("message", (data, binary) => socket.#receive(data as Buffer, binary));
      ws.on("close", (code) => onMessage({ kind: "closed", code }));
      ws.on("error", reject);
      ws.on("open", () => {
        ws.send(JSON.stringify(["1", "1", SYNC_CHANNEL, "phx_join", { encoding }]));
        resolve(socket);
      });
    });
  }

  /** Pushes JSON, or the message of the same content; returns the ref of the reply. */
  push<S extends DescMessage>(
    event: "subscribe" | "heartbeat" | "auth",
    schema: S,
    init: MessageInitShape<S>,
    json: unknown,
  ): string {
    const ref = String(++this.#refs);
    this.#asked.set(ref, event);
    const head = { joinRef: "1", ref, topic: SYNC_CHANNEL, event };
    const frame =
      this.#encoding === "proto"
        ? phoenix.encodeClientBinary({ ...head, payload: toBinary(schema, create(schema, init)) })
        : phoenix.encodeText({ ...head, payload: json });
    if (this.#ws.readyState === WebSocket.OPEN) this.#ws.send(frame);
    return ref;
  }

  /** Stops reading, as a client on a busy machine does. */
  pause(): void {
    this.#ws.pause();
  }

  resume(): void {
    this.unanswered = 0;
    this.#ws.resume();
  }

  get paused(): boolean {
    return this.#ws.isPaused;
  }

  /** Breaks the connection without closing it. */
  terminate(): void {
    this.#ws.terminate();
  }

  #receive(data: Buffer, binary: boolean): void {
    this.unanswered = 0;
    const message = binary ? this.#readBinary(data) : this.#readText(data.toString());
    if (message) this.#onMessage(message);
  }

  #readText(text: string): WireMessage | undefined {
    const { event, ref, payload } = phoenix.decodeText(text);
    const body = payload as JsonBody;
    if (event === "phx_reply" && ref !== null && ref !== "1") {
      const reason = body.status === "ok" ? "" : JSON.stringify(body.response);
      const positions = cursors(body.response?.current_watermarks ?? body.response?.watermarks);
      return { kind: "reply", ref, ok: body.status === "ok", positions, reason };
    }
    if (event !== "frame") return undefined;
    const { update_batch: batch, heartbeat, error } = body;
    if (batch) {
      const { topic, through, replay_complete: replayComplete = false } = batch;
      return {
        kind: "batch",
        topic,
        through: cursorOf(through),
        replayComplete,
        updates: batch.updates.map((update) => ({
          docKey: update.doc_key,
          docVersion: BigInt(update.doc_version),
          op: update.op,
          payload: update.payload && JSON.stringify(update.payload),
          hash: update.payload_hash,
          watermark: BigInt(update.watermark),
          fetchRequired: update.fetch_required ?? false,
        })),
      };
    }
    if (heartbeat) return { kind: "heartbeat", positions: cursors(heartbeat.watermarks) };
    const topics = (error!.topics ?? []).map(({ topic, sent, floor }) => {
      return { topic, sent: cursorOf(sent), floor: cursorOf(floor) };
    });
    return { kind: "error", code: error!.code, topics };
  }

  #readBinary(data: Buffer): WireMessage | undefined {
    const frame = phoenix.decodeServerBinary(data);
    if (frame.kind === "reply") {
      const asked = this.#asked.get(frame.ref ?? "");
      const positions =
        asked === "subscribe"
          ? fromBinary(SubscribedSchema, frame.data).currentWatermarks
          : asked === "heartbeat"
            ? fromBinary(HeartbeatSchema, frame.data).watermarks
            : {};
      return {
        kind: "reply",
        ref: frame.ref ?? "",
        ok: true,
        positions: protoCursors(positions),
        reason: "",
      };
    }
    const { body } = fromBinary(FrameSchema, frame.data);
    if (body.case === "updateBatch") {
      const { topic, updates, through, replayComplete } = body.value;
      return {
        kind: "batch",
        topic,
        through: { epoch: through!.epoch, watermark: through!.watermark },
        replayComplete,
        updates: updates.map(({ payload, payloadHash, ...update }) => ({
          ...update,
          payload: payload && Buffer.from(payload).toString(),
          hash: payloadHash,
        })),
      };
    }
    if (body.case === "heartbeat")
      return { kind: "heartbeat", positions: protoCursors(body.value.watermarks) };
    if (body.case !== "error") return undefined;
    const topics = body.value.topics.map(({ topic, sent, floor }) => ({ topic, sent: sent!, floor: floor! }));
    return { kind: "error", code: body.value.code, topics };
  }
}

interface JsonBody {
  readonly status?: string;
  readonly response?: {
    readonly current_watermarks?: Record<string, JsonCursor>;
    readonly watermarks?: Record<string, JsonCursor>;
  };
  readonly update_batch?: {
    readonly topic: string;
    readonly updates: readonly {
      readonly doc_key: string;
      readonly doc_version: string;
      readonly op: string;
      readonly payload?: object;
      readonly payload_hash?: string;
      readonly watermark: string;
      readonly fetch_required?: boolean;
    }[];
    readonly through: JsonCursor;
    readonly replay_complete?: boolean;
  };
  readonly heartbeat?: { readonly watermarks?: Record<string, JsonCursor> };
  readonly error?: {
    readonly code: string;
    readonly topics?: readonly { topic: string; sent: JsonCursor; floor: JsonCursor }[];
  };
}
