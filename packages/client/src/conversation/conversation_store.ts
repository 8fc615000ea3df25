import { KhalaError } from "@khala/contracts";
import type { TranscriptMessageJson } from "@khala/contracts/conversation/v1";
import type { Environment } from "../environment.ts";
import type { Log } from "../log.ts";
import { isObject, OutdatedChange, withStorageTimeout } from "../storage/driver_support.ts";
import type { Cursor, Storage, StoredTopic } from "../storage/storage.ts";
import type { ConversationState } from "./source.ts";

export interface ConversationStoreOptions {
  readonly storage: Storage;
  /** Whose conversations these are. */
  readonly scope: string;
  readonly environment: Environment;
  readonly log: Log;
  /** Serialises operations that read and write the same entry. */
  readonly serialize: <T>(work: () => Promise<T>) => Promise<T>;
}

/** Limits of stored conversations and their size: together less than half of localStorage's quota. */
export const MAX_CONVERSATIONS = 16;
export const MAX_CHARACTERS = 128 << 10;
const MAX_MESSAGES = 500;

/** The storage topic of a conversation; no sync topic has a colon. The one without an id lists the stored ids, newest first. */
const TOPIC = "conversation:";
const FORMAT = "1";
/** Names a write to the storage. The position in the conversation's log is part of its payload. */
const cursorOf = (write: string): Cursor => ({ epoch: write, watermark: "0" });

/** The stored conversations of one person. Failures are logged, not thrown: the server has everything. */
export class ConversationStore {
  readonly #options: ConversationStoreOptions;
  /** The last known write of each conversation. One that is no longer stored was cleared, and is not written back. */
  readonly #written = new Map<string, Cursor>();
  /** Conversations that another tab may have written since. */
  #shared = new Set<string>();

  constructor(options: ConversationStoreOptions) {
    this.#options = options;
  }

  /** Loads a conversation. Without a cursor it is incomplete. An unreadable one is removed. */
  load(convId: string): Promise<ConversationState | undefined> {
    return this.#try("storage_unreadable", "The conversation will not be available offline.", async () => {
      const topic = await this.#topic(TOPIC + convId);
      const stored = payloadOf(topic, convId);
      if (stored !== undefined && !isState(stored)) await this.#clear(convId);
      if (!topic || !isState(stored)) {
        this.#written.delete(convId);
        return undefined;
      }
      this.#written.set(convId, topic.cursor);
      return stored;
    });
  }

  /** This tab begins to write. */
  startOver(): void {
    this.#shared = new Set(this.#written.keys());
  }

  /** Replaces a stored conversation; resolves with whether that worked. */
  async save(convId: string, state: ConversationState, opened: boolean): Promise<boolean> {
    const saved = await this.#try("storage_failed", "The conversation is not stored.", async () => {
      const limited = limitSize(state);
      if (limited.messages.length === 0) {
        await this.#remove(convId);
        return true;
      }
      if (this.#shared.delete(convId)) {
        const topic = await this.#topic(TOPIC + convId);
        if (topic) this.#written.set(convId, topic.cursor);
      }
      const after = this.#written.get(convId);
      // Listed first: an entry that is not listed would never be removed.
      await this.#name(convId, opened, after !== undefined);
      this.#written.set(convId, await this.#write(TOPIC + convId, convId, limited, after));
      return true;
    });
    return saved ?? false;
  }

  async remove(convId: string): Promise<void> {
    await this.#try("storage_not_cleared", "The conversation is still stored.", () => this.#remove(convId));
  }

  /** Moves an opened or new conversation to the front of the list, and removes those beyond the limit. */
  async #name(convId: string, opened: boolean, stored: boolean): Promise<void> {
    const ids = await this.#ids();
    const listed = ids.includes(convId);
    if (stored && !listed) throw new OutdatedChange();
    if (!opened && listed) return;
    const next = [convId, ...ids.filter((id) => id !== convId)];
    for (const id of next.slice(MAX_CONVERSATIONS)) await this.#clear(id);
    await this.#write(TOPIC, "ids", next.slice(0, MAX_CONVERSATIONS));
  }

  async #remove(convId: string): Promise<void> {
    this.#written.delete(convId);
    await this.#clear(convId);
    const ids = await this.#ids();
    const left = ids.filter((id) => id !== convId);
    if (left.length < ids.length) await this.#write(TOPIC, "ids", left);
  }

  async #ids(): Promise<readonly string[]> {
    const stored = payloadOf(await this.#topic(TOPIC), "ids");
    return Array.isArray(stored) ? stored.filter((id) => typeof id === "string") : [];
  }

  #topic(topic: string): Promise<StoredTopic | undefined> {
    const { storage, scope, environment } = this.#options;
    return withStorageTimeout(environment, storage.load(scope, topic));
  }

  /** Writes the whole topic; with `after` only if that write is still stored. */
  async #write(topic: string, key: string, payload: unknown, after?: Cursor): Promise<Cursor> {
    const { storage, scope, environment } = this.#options;
    const put = [{ key, version: FORMAT, hash: "", payload }];
    const cursor = cursorOf(environment.newId());
    const place = after ? { after } : { replace: true as const };
    await withStorageTimeout(
      environment,
      storage.commit(scope, topic, { ...place, put, remove: [], cursor }),
    );
    return cursor;
  }

  #clear(convId: string): Promise<void> {
    const { storage, scope, environment } = this.#options;
    return withStorageTimeout(environment, storage.clear(scope, TOPIC + convId));
  }

  async #try<T>(event: string, message: string, work: () => Promise<T>): Promise<T | undefined> {
    const { serialize, log } = this.#options;
    try {
      return await serialize(work);
    } catch (error) {
      if (error instanceof KhalaError && error.code === "sequence_conflict") log({ ...CHANGED, error });
      else log({ level: "error", event, message, error });
      return undefined;
    }
  }
}

const CHANGED = {
  level: "warn",
  event: "storage_changed",
  message: "The stored conversation was cleared or changed. It is stored again when it is opened again.",
} as const;

function payloadOf(topic: StoredTopic | undefined, key: string): unknown {
  const document = topic?.documents[0];
  return document?.key === key && document.version === FORMAT ? document.payload : undefined;
}

/** Keeps the newest messages that fit. If some are cut, the state has no cursor to resume from. */
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

/** Minimum time between writes while text streams. */
const DEBOUNCE_MS = 1_000;

/** One stored conversation: loads it, and writes changes with a debounce. */
export class StoredConversation {
  readonly #store: ConversationStore;
  readonly #convId: string;
  readonly #environment: Environment;
  /** Whether this tab writes. */
  readonly #storing: () => boolean;
  /** The state to write next. */
  #next: ConversationState | undefined;
  #writing = false;
  #opened = true;
  /** The storage failed or was cleared: no more writes until the conversation is opened again. */
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

  /** Writes after a delay, or at once. */
  changed(state: ConversationState, atOnce: boolean): void {
    if (!this.#storing() || this.#failed) return;
    this.#next = state;
    if (atOnce) return this.flush();
    if (this.#writing) return;
    this.#cancel ??= this.#environment.timer(DEBOUNCE_MS, () => this.flush());
  }

  /** Writes a pending state now. */
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
    // A state that arrived during the write is next.
    if (this.#next) this.changed(this.#next, false);
  }
}
