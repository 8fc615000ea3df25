import type { EventJson, RunJson, TranscriptMessageJson } from "@khala/contracts/conversation/v1";
import { parseCursor } from "../../../server/src/conversations/log/cursor.ts";

/** A frame of a conversation's socket, as it is on the wire. */
export interface TimelineJson {
  readonly type: string;
  readonly conv_id?: string;
  readonly cursor?: string;
  readonly run?: RunJson | null;
  readonly messages?: readonly TranscriptMessageJson[];
  readonly seq?: string;
  readonly run_id?: string;
  readonly event?: EventJson;
  readonly reason?: string;
  readonly code?: string;
  readonly message?: string;
  readonly expires_at?: string;
}

/** A client's view of its frames: the text of each message, and whether anything is missing or repeated. */
export class TimelineView {
  readonly texts = new Map<string, string>();
  /** The cursor to resume from. */
  cursor: string | undefined;
  /** Entries that came out of order. */
  readonly wrong: string[] = [];
  #seq = 0n;

  apply(frame: TimelineJson): void {
    if (frame.type === "resync") this.texts.clear();
    if (frame.type === "snapshot")
      for (const { message_id = "", parts = [] } of frame.messages ?? [])
        this.texts.set(message_id, parts.map(({ text = "" }) => text).join(""));
    if (frame.type === "hello" || frame.type === "snapshot") this.#seq = seqOf(frame.cursor!);
    if (frame.type === "event") this.#event(frame);
    if (frame.cursor && frame.type !== "heartbeat") this.cursor = frame.cursor;
  }

  #event({ seq = "", event = {} }: TimelineJson): void {
    if (BigInt(seq) !== this.#seq + 1n) this.wrong.push(`${seq} came after ${this.#seq}`);
    this.#seq = BigInt(seq);
    const { message, text_delta } = event;
    if (message) this.texts.set(message.message_id!, message.text!);
    if (!text_delta) return;
    const { message_id = "", text = "" } = text_delta;
    this.texts.set(message_id, (this.texts.get(message_id) ?? "") + text);
  }
}

/** The sequence in a cursor. Cursors are opaque to clients; tests decode them. */
export function seqOf(cursor: string): bigint {
  return parseCursor(cursor, "cursor").seq;
}
