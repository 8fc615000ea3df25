import type { KhalaError } from "@khala/contracts";
import type { EventFrameJson, TranscriptMessageJson } from "@khala/contracts/conversation/v1";
import type {
  Attachment,
  TimelineSubscriber,
} from "../../../packages/server/src/conversations/timeline/attachment.ts";
import type { OutgoingFrames } from "../../../packages/server/src/conversations/timeline/timeline.ts";

interface Known {
  text: string;
}

type AnyFrame =
  | { type: "hello"; cursor: string }
  | { type: "snapshot"; messages: TranscriptMessageJson[]; cursor: string }
  | ({ type: "event" } & Required<Pick<EventFrameJson, "seq" | "cursor" | "event">>)
  | { type: "resync"; reason: string };

/** A client that keeps to the rules of docs/protocol/CONVERSATIONS.md, and fails when the server does not. */
export class ConversationClient implements TimelineSubscriber {
  readonly messages = new Map<string, Known>();
  /** It knows every message that began after this sequence. */
  completeAfter = 0n;
  cursor: string | undefined;
  attachment: Attachment | undefined;
  /** Where it is attached. */
  server: number | undefined;
  /** Lets go of the reader. */
  release: (() => void) | undefined;
  /** Takes nothing while true. */
  full = false;
  endedWith: KhalaError | undefined;
  /** What the server did wrong. */
  failure: Error | undefined;
  #resyncing = false;

  get seq(): bigint {
    return sequenceOf(this.cursor);
  }

  /** Forgets everything, as a page that is opened for the first time. */
  forget(): void {
    this.messages.clear();
    this.cursor = undefined;
    this.#resyncing = false;
  }

  detach(): void {
    this.attachment?.close();
    this.attachment = undefined;
    this.release?.();
    this.release = undefined;
  }

  offer({ frames }: OutgoingFrames): boolean {
    if (this.full) return false;
    try {
      for (const { json } of frames) this.#apply(JSON.parse(json) as AnyFrame);
    } catch (error) {
      this.failure ??= error as Error;
    }
    return true;
  }

  end(error: KhalaError): void {
    this.endedWith = error;
    this.detach();
  }

  #apply(frame: AnyFrame): void {
    if (frame.type === "hello") {
      if (this.cursor === undefined) this.completeAfter = sequenceOf(frame.cursor);
      this.cursor ??= frame.cursor;
    } else if (frame.type === "resync") {
      this.#resyncing = true;
    } else if (frame.type === "snapshot") {
      if (this.#resyncing) {
        this.messages.clear();
        // The table has everything, whatever the log still holds.
        this.completeAfter = -1n;
      }
      this.#resyncing = false;
      for (const { message_id, parts = [] } of frame.messages)
        this.messages.set(message_id!, { text: parts.map(({ text = "" }) => text).join("") });
      this.cursor = frame.cursor;
    } else if (frame.type === "event") {
      if (BigInt(frame.seq) !== this.seq + 1n)
        throw new Error(`After ${this.cursor} came the event ${frame.seq}: something is missing or doubled.`);
      this.cursor = frame.cursor;
      const { message, text_delta } = frame.event;
      const { message_id, text = "" } = message ?? text_delta ?? {};
      if (message_id === undefined) return;
      const known = this.messages.get(message_id) ?? { text: "" };
      this.messages.set(message_id, { ...known, text: known.text + text });
    }
  }
}

/** The sequence in a cursor. Only a test may look into one. */
function sequenceOf(cursor: string | undefined): bigint {
  return BigInt(cursor?.slice(cursor.lastIndexOf("-") + 1) ?? "0");
}
