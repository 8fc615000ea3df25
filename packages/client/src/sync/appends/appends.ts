import { KhalaError } from "@khala/contracts";
import type { AppendResponseJson } from "@khala/contracts/runtime/v1";
import { type Backoff, backoffMs } from "../../connection/backoff.ts";
import type { Http } from "../../http.ts";
import { oneAtATime } from "../../storage/driver_support.ts";
import type { Sync } from "../plane_port.ts";
import { AppendStore, type AppendStoreOptions, type StoredAppend } from "./append_store.ts";
import type { AnyAppends, AppendOptions, Appends, EventPage, PendingAppend } from "./appends_port.ts";

/** Appends that wait for the server or for their documents. */
export const MAX_PENDING_APPENDS = 1_000;
/** Events of one request; the server takes no more. */
const MAX_EVENTS = 1_000;
/** A document that has not changed by then was not going to: its model may ignore the event. */
export const ARRIVAL_MS = 10_000;
/** A fault of the server that stays must not hold up the stream for ever. */
const MAX_FAULTS = 5;
const RETRY: Backoff = { baseMs: 500, capMs: 30_000 };

export interface AppendsOptions extends AppendStoreOptions {
  readonly http: Http;
  /** Where documents arrive. */
  readonly sync: Pick<Sync, "get" | "subscribe">;
  /** Something is appended before the scope is known. */
  readonly onScopeNeeded?: () => void;
}

/** The appends of a client, and what they need when it closes or the person changes. */
export interface OwnAppends {
  readonly appends: Appends<never>;
  /** Whose appends these are: what is stored of them is sent. Those of another person before are rejected. */
  setScope(scope: string): void;
  /** Rejects everything that is pending. What is stored is sent by the next client. */
  close(): Promise<void>;
}

const ANOTHER_PERSON = "The token belongs to another subject now. Unsent appends are dropped.";
const CLOSED = "The client was closed before the server answered.";

/** Opens the queue of appends. */
export function openAppends(options: AppendsOptions): OwnAppends {
  const queue = new AppendQueue(options);
  const appends: Appends = {
    append: (path, id, events, append) => queue.append(path, id, [events].flat(), append ?? {}),
    events: (path, id, page) => readEvents(options.http, path, id, page ?? {}),
    pending: () => queue.pending,
    onPending: (listener) => queue.onChange(listener),
  };
  // Only the app knows what may be appended.
  return {
    appends: appends as unknown as Appends<never>,
    setScope: (scope) => queue.setScope(scope),
    close: () => queue.close(),
  };
}

/** A pending append, and what ends it. */
interface Entry {
  shown: PendingAppend;
  readonly key: string;
  readonly expectedSeq: string | undefined;
  readonly abort: AbortController;
  /** Stops following the document, and the timers. */
  readonly stops: (() => void)[];
}

class AppendQueue {
  readonly #options: AppendsOptions;
  readonly #entries = new Set<Entry>();
  /** The last append of each stream. */
  readonly #last = new Map<string, Promise<unknown>>();
  readonly #listeners = new Set<() => void>();
  #pending: readonly PendingAppend[] = [];
  #store: AppendStore | undefined;
  readonly #serialize = oneAtATime("The storage");
  #made = 0;

  constructor(options: AppendsOptions) {
    this.#options = options;
  }

  get pending(): readonly PendingAppend[] {
    return this.#pending;
  }

  onChange(listener: () => void): () => void {
    // The same function may listen twice.
    const notify = () => listener();
    this.#listeners.add(notify);
    return () => void this.#listeners.delete(notify);
  }

  setScope(scope: string): void {
    // One person's events are never sent as another's.
    if (this.#store) this.#drop(new KhalaError("subject_mismatch", ANOTHER_PERSON));
    const store = new AppendStore(this.#options, scope, this.#serialize);
    this.#store = store;
    for (const entry of this.#entries) if (entry.shown.state === "sending") store.put(storedOf(entry));
    void store.load().then((stored) => {
      if (this.#store === store) this.#restore(stored);
    });
  }

  async close(): Promise<void> {
    // What is pending stays in the storage.
    this.#store = undefined;
    this.#drop(new KhalaError("unavailable", CLOSED));
    await this.#serialize(async () => {});
  }

  /** Sends what a client before this one could not. */
  #restore(stored: readonly StoredAppend[]): void {
    const known = new Set([...this.#entries].map(({ key }) => key));
    for (const append of stored.slice(0, MAX_PENDING_APPENDS - known.size)) {
      if (known.has(append.key)) continue;
      const { path, id } = append;
      this.#send(this.#entry(append)).catch((error) => {
        const message = `An append to ${path}/${id} from before the page was closed was refused.`;
        if (this.#store) this.#options.log({ level: "error", event: "append_refused", message, error });
      });
    }
  }

  #drop(reason: KhalaError): void {
    for (const { abort } of [...this.#entries]) abort.abort(reason);
    for (const entry of [...this.#entries]) this.#end(entry);
  }

  async append(
    path: string,
    id: string,
    events: readonly AnyAppends[string][],
    { expectedSeq, document, signal }: AppendOptions,
  ): Promise<{ readonly seq: string }> {
    if (events.length === 0 || events.length > MAX_EVENTS)
      throw new KhalaError(
        "invalid_request",
        `Append 1 to ${MAX_EVENTS} events at once, not ${events.length}.`,
        {
          field: "events",
        },
      );
    if (this.#entries.size >= MAX_PENDING_APPENDS)
      throw new KhalaError(
        "limit_exceeded",
        `${MAX_PENDING_APPENDS} appends are pending. Wait for some to be sent.`,
      );
    const withIds = events.map((event) => ({
      ...event,
      event_id: event.event_id ?? this.#options.environment.newId(),
    }));
    const made = `${this.#options.environment.now()}`.padStart(15, "0");
    const key = `${made} ${`${this.#made++}`.padStart(9, "0")} ${withIds[0]!.event_id}`;
    const more = {
      ...(document && { document }),
      ...(expectedSeq !== undefined && { expectedSeq: String(expectedSeq) }),
    };
    const entry = this.#entry({ key, path, id, events: withIds, ...more });
    this.#bindSignal(entry, signal);
    if (this.#store) this.#store.put(storedOf(entry));
    else this.#options.onScopeNeeded?.();
    return this.#send(entry);
  }

  #entry({ key, expectedSeq, ...append }: StoredAppend): Entry {
    return {
      shown: { ...append, state: "sending" },
      key,
      expectedSeq,
      abort: new AbortController(),
      stops: [],
    };
  }

  async #send(entry: Entry): Promise<{ readonly seq: string }> {
    const { path, id } = entry.shown;
    const hasArrived = this.#watch(entry);
    this.#entries.add(entry);
    this.#changed();
    try {
      const answer = await this.#inOrder(streamUrl(path, id), () => this.#deliver(entry));
      if (hasArrived()) this.#end(entry);
      else this.#awaitDocument(entry);
      return answer;
    } catch (error) {
      this.#end(entry);
      throw error;
    }
  }

  #bindSignal({ abort, stops }: Entry, signal: AbortSignal | undefined): void {
    if (!signal) return;
    const give = () => abort.abort(signal.reason);
    if (signal.aborted) give();
    signal.addEventListener("abort", give, { once: true });
    stops.push(() => signal.removeEventListener("abort", give));
  }

  /** Follows the document. The return value shows whether it has changed since. */
  #watch(entry: Entry): () => boolean {
    const { document } = entry.shown;
    if (!document) return () => true;
    const { sync } = this.#options;
    const { topic, key } = document;
    const version = () => sync.get(topic, key).version;
    const check = () => {
      if (entry.shown.state === "arriving" && version() !== before) this.#end(entry);
    };
    entry.stops.push(sync.subscribe(topic, key, check));
    const before = version();
    return () => version() !== before;
  }

  #awaitDocument(entry: Entry): void {
    if (!this.#entries.has(entry)) return;
    this.#store?.remove(entry.key);
    const { error: _, ...shown } = entry.shown;
    entry.shown = { ...shown, state: "arriving" };
    entry.stops.push(this.#options.environment.timer(ARRIVAL_MS, () => this.#end(entry)));
    this.#changed();
  }

  /** Runs one append of a stream after the other. */
  #inOrder<T>(stream: string, work: () => Promise<T>): Promise<T> {
    const done = (this.#last.get(stream) ?? Promise.resolve()).then(work);
    const settled: Promise<void> = done
      .then(
        () => {},
        () => {},
      )
      .then(() => {
        if (this.#last.get(stream) === settled) this.#last.delete(stream);
      });
    this.#last.set(stream, settled);
    return done;
  }

  /** Sends until the server answers. Event ids make a repeated request harmless. */
  async #deliver(entry: Entry): Promise<{ readonly seq: string }> {
    const { environment, http } = this.#options;
    const { path, id, events } = entry.shown;
    const { signal } = entry.abort;
    const body = {
      ...(entry.expectedSeq !== undefined && { expected_seq: entry.expectedSeq }),
      events: events.map(({ event_id, type, data = {} }) => ({ event_id, type, data })),
    };
    for (let attempt = 1, faults = 0; ; attempt++) {
      signal.throwIfAborted();
      try {
        const answer = await http.request("POST", `${streamUrl(path, id)}/events`, { body, signal });
        return { seq: (answer.body as AppendResponseJson).seq ?? "0" };
      } catch (error) {
        signal.throwIfAborted();
        if (!(error instanceof KhalaError)) throw error;
        if (error.code === "internal") faults++;
        if (!error.meaning.retryable || faults >= MAX_FAULTS) throw this.#explain(error, entry);
        entry.shown = { ...entry.shown, error };
        this.#changed();
        const wait = backoffMs(attempt, () => environment.random(), RETRY, error.details.retry_after_ms);
        await this.#pause(wait, signal);
      }
    }
  }

  /** A conflict names what to read. */
  #explain(error: KhalaError, { shown: { path, id }, expectedSeq = "0" }: Entry): KhalaError {
    if (error.code !== "sequence_conflict") return error;
    const read = `Read the newer events with \`sync.events("${path}", "${id}", { after: "${expectedSeq}" })\`.`;
    return new KhalaError(error.code, `${error.message} ${read}`, error.details, { cause: error });
  }

  /** Waits, or until the network returns. */
  #pause(ms: number, signal: AbortSignal): Promise<void> {
    const { environment } = this.#options;
    return new Promise((resolve) => {
      const end = () => {
        cancel();
        unsubscribe?.();
        signal.removeEventListener("abort", end);
        resolve();
      };
      const cancel = environment.timer(ms, end);
      const unsubscribe = environment.online?.subscribe(() => environment.online?.get() && end());
      signal.addEventListener("abort", end);
    });
  }

  #end(entry: Entry): void {
    if (!this.#entries.delete(entry)) return;
    if (entry.shown.state === "sending") this.#store?.remove(entry.key);
    for (const stop of entry.stops) stop();
    this.#changed();
  }

  #changed(): void {
    this.#pending = [...this.#entries].map(({ shown }) => shown);
    for (const listener of [...this.#listeners]) listener();
  }
}

function storedOf({ key, expectedSeq, shown: { path, id, events, document } }: Entry): StoredAppend {
  return {
    key,
    path,
    id,
    events,
    ...(document && { document }),
    ...(expectedSeq !== undefined && { expectedSeq }),
  };
}

function streamUrl(path: string, id: string): string {
  return `${path}/${encodeURIComponent(id)}`;
}

async function readEvents(
  http: Http,
  path: string,
  id: string,
  {
    after,
    limit,
    signal,
  }: { readonly after?: string; readonly limit?: number; readonly signal?: AbortSignal },
): Promise<EventPage> {
  const options = { query: { after, limit }, ...(signal && { signal }) };
  const { body } = await http.request("GET", `${streamUrl(path, id)}/events`, options);
  const { events = [], next } = body as Partial<EventPage>;
  return { events, ...(next !== undefined && { next }) };
}
