import type { TranscriptMessageJson } from "@khala/contracts/conversation/v1";
import type { Environment } from "../environment.ts";
import type { Log } from "../log.ts";
import { inTime } from "../storage/in_time.ts";
import { isObject } from "../storage/shape.ts";
import type { Storage } from "../storage/storage.ts";
import type { ConversationState } from "./source.ts";

export interface ConversationStoreOptions {
  readonly storage: Storage;
  /** Whose conversations these are. */
  readonly scope: string;
  readonly environment: Environment;
  readonly log: Log;
  /** Runs one thing after the other: what is stored under one name is read and written by more than one step. */
  readonly inTurn: <T>(work: () => Promise<T>) => Promise<T>;
}

/** So many conversations are kept, of each the newest messages that fit: together less than half of what localStorage takes. */
export const MOST_CONVERSATIONS = 16;
export const MOST_CHARACTERS = 128 << 10;
const MOST_MESSAGES = 500;

/** No topic has a colon in its name. The ids that are kept, newest first, are in the place without an id. */
const PLACE = "conversation:";
const FORMAT = "1";
/** Where a conversation is true is part of it; the storage's own cursor says nothing. */
const NOWHERE = { epoch: "", watermark: "0" };

/** The conversations of one person on this device. A failure is reported, not thrown: the server has them all. */
export class ConversationStore {
  readonly #options: ConversationStoreOptions;

  constructor(options: ConversationStoreOptions) {
    this.#options = options;
  }

  /** What is kept of a conversation. Without a cursor it is not all of it. What cannot be understood is removed. */
  load(convId: string): Promise<ConversationState | undefined> {
    return this.#try("storage_unreadable", "The conversation has no offline start.", async () => {
      const stored = await this.#read(PLACE + convId, convId);
      if (stored === undefined || isState(stored)) return stored;
      await this.#clear(convId);
      return undefined;
    });
  }

  /** Keeps a conversation in the place of what was kept of it; resolves with whether that worked. */
  async save(convId: string, state: ConversationState, opened: boolean): Promise<boolean> {
    const saved = await this.#try("storage_failed", "The conversation is not kept.", async () => {
      const kept = keepable(state);
      if (kept.messages.length === 0) {
        await this.#remove(convId);
        return true;
      }
      // Named first: what is not named would never be removed.
      await this.#name(convId, opened);
      await this.#write(PLACE + convId, convId, kept);
      return true;
    });
    return saved ?? false;
  }

  async remove(convId: string): Promise<void> {
    await this.#try("storage_not_cleared", "The conversation is still kept.", () => this.#remove(convId));
  }

  /** Puts a conversation first when it was opened or is new, and lets go of those that come last. */
  async #name(convId: string, opened: boolean): Promise<void> {
    const ids = await this.#ids();
    if (!opened && ids.includes(convId)) return;
    const next = [convId, ...ids.filter((id) => id !== convId)];
    for (const id of next.slice(MOST_CONVERSATIONS)) await this.#clear(id);
    await this.#write(PLACE, "ids", next.slice(0, MOST_CONVERSATIONS));
  }

  async #remove(convId: string): Promise<void> {
    await this.#clear(convId);
    const ids = await this.#ids();
    const left = ids.filter((id) => id !== convId);
    if (left.length < ids.length) await this.#write(PLACE, "ids", left);
  }

  async #ids(): Promise<readonly string[]> {
    const stored = await this.#read(PLACE, "ids");
    return Array.isArray(stored) ? stored.filter((id) => typeof id === "string") : [];
  }

  async #read(place: string, key: string): Promise<unknown> {
    const { storage, scope, environment } = this.#options;
    const stored = await inTime(environment, storage.load(scope, place));
    const document = stored?.documents[0];
    return document?.key === key && document.version === FORMAT ? document.payload : undefined;
  }

  #write(place: string, key: string, payload: unknown): Promise<void> {
    const { storage, scope, environment } = this.#options;
    const put = [{ key, version: FORMAT, hash: "", payload }];
    const change = { replace: true, put, remove: [], cursor: NOWHERE };
    return inTime(environment, storage.commit(scope, place, change));
  }

  #clear(convId: string): Promise<void> {
    const { storage, scope, environment } = this.#options;
    return inTime(environment, storage.clear(scope, PLACE + convId));
  }

  async #try<T>(event: string, message: string, work: () => Promise<T>): Promise<T | undefined> {
    const { inTurn, log } = this.#options;
    try {
      return await inTurn(work);
    } catch (error) {
      log({ level: "error", event, message, error });
      return undefined;
    }
  }
}

/** The newest messages that there is room for. When that is not all of them, there is no cursor to go on from. */
export function keepable(
  { messages, run, cursor, seq }: ConversationState,
  most = MOST_CHARACTERS,
): ConversationState {
  let characters = 0;
  let first = messages.length;
  while (first > 0 && messages.length - first < MOST_MESSAGES) {
    characters += JSON.stringify(messages[first - 1]).length;
    if (characters > most) break;
    first--;
  }
  return first === 0
    ? { messages, run, cursor, seq }
    : { messages: messages.slice(first), run, cursor: "", seq: "0" };
}

function isState(value: unknown): value is ConversationState {
  if (!isObject(value)) return false;
  const { messages, run, cursor, seq } = value;
  return (
    Array.isArray(messages) &&
    messages.every(isMessage) &&
    (run === null || isObject(run)) &&
    typeof cursor === "string" &&
    typeof seq === "string" &&
    /^\d+$/.test(seq)
  );
}

function isMessage(value: unknown): value is TranscriptMessageJson {
  if (!isObject(value) || typeof value.message_id !== "string" || typeof value.role !== "string")
    return false;
  const { parts = [] } = value;
  return Array.isArray(parts) && parts.every(isObject);
}
