import type { TranscriptMessageJson } from "@khala/contracts/conversation/v1";
import type { Environment } from "../environment.ts";
import type { Log } from "../log.ts";
import { isObject, withStorageTimeout } from "../storage/driver_support.ts";
import type { Storage } from "../storage/storage.ts";
import type { ConversationState } from "./source.ts";

export interface ConversationStoreOptions {
  readonly storage: Storage;
  /** Whose conversations these are. */
  readonly scope: string;
  readonly environment: Environment;
  readonly log: Log;
  /** Runs one thing after the other: what is stored under one name is read and written by more than one step. */
  readonly serialize: <T>(work: () => Promise<T>) => Promise<T>;
}

/** So many conversations are kept, of each the newest messages that fit: together less than half of what localStorage takes. */
export const MAX_CONVERSATIONS = 16;
export const MAX_CHARACTERS = 128 << 10;
const MAX_MESSAGES = 500;

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
      const kept = limitSize(state);
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
    for (const id of next.slice(MAX_CONVERSATIONS)) await this.#clear(id);
    await this.#write(PLACE, "ids", next.slice(0, MAX_CONVERSATIONS));
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
    const stored = await withStorageTimeout(environment, storage.load(scope, place));
    const document = stored?.documents[0];
    return document?.key === key && document.version === FORMAT ? document.payload : undefined;
  }

  #write(place: string, key: string, payload: unknown): Promise<void> {
    const { storage, scope, environment } = this.#options;
    const put = [{ key, version: FORMAT, hash: "", payload }];
    const change = { replace: true, put, remove: [], cursor: NOWHERE };
    return withStorageTimeout(environment, storage.commit(scope, place, change));
  }

  #clear(convId: string): Promise<void> {
    const { storage, scope, environment } = this.#options;
    return withStorageTimeout(environment, storage.clear(scope, PLACE + convId));
  }

  async #try<T>(event: string, message: string, work: () => Promise<T>): Promise<T | undefined> {
    const { serialize, log } = this.#options;
    try {
      return await serialize(work);
    } catch (error) {
      log({ level: "error", event, message, error });
      return undefined;
    }
  }
}

/** The newest messages that there is room for. When that is not all of them, there is no cursor to go on from. */
export function limitSize(
  { messages, run, cursor, seq }: ConversationState,
  most = MAX_CHARACTERS,
): ConversationState {
  let characters = 0;
  let first = messages.length;
  while (first > 0 && messages.length - first < MAX_MESSAGES) {
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

/** While words come, they are written down no more often than this. */
const EVERY_MS = 1_000;

/** One conversation on this device: what it was, and from then on what it becomes. */
export class StoredConversation {
  readonly #store: ConversationStore;
  readonly #convId: string;
  readonly #environment: Environment;
  /** Whether this tab writes. */
  readonly #storing: () => boolean;
  /** What is still to be written. */
  #next: ConversationState | undefined;
  #writing = false;
  #opened = true;
  /** The storage took no more: it is tried again when the conversation is opened again. */
  #failed = false;
  #cancel: (() => void) | undefined;

  constructor(store: ConversationStore, convId: string, environment: Environment, storing: () => boolean) {
    this.#store = store;
    this.#convId = convId;
    this.#environment = environment;
    this.#storing = storing;
  }

  load(): Promise<ConversationState | undefined> {
    return this.#store.load(this.#convId);
  }

  /** Writes it in a while, with what comes until then; or at once. */
  changed(state: ConversationState, atOnce: boolean): void {
    if (!this.#storing() || this.#failed) return;
    this.#next = state;
    if (atOnce) return this.flush();
    if (this.#writing) return;
    this.#cancel ??= this.#environment.timer(EVERY_MS, () => this.flush());
  }

  /** Writes what has not been written yet. */
  flush(): void {
    this.#cancel?.();
    this.#cancel = undefined;
    const next = this.#next;
    this.#next = undefined;
    if (next) void this.#write(next);
  }

  remove(): void {
    this.#next = undefined;
    this.flush();
    void this.#store.remove(this.#convId);
  }

  async #write(state: ConversationState): Promise<void> {
    this.#writing = true;
    const opened = this.#opened;
    this.#opened = false;
    this.#failed = !(await this.#store.save(this.#convId, state, opened));
    this.#writing = false;
    // What came meanwhile has waited for this.
    if (this.#next) this.changed(this.#next, false);
  }
}
