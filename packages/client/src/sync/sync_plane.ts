import { KhalaError } from "@khala/contracts";
import type { Environment } from "../environment.ts";
import type { Http } from "../http.ts";
import type { Log } from "../log.ts";
import type { Storage } from "../storage/storage.ts";
import { readDocument } from "./document_requests.ts";
import { type Entry, isUnfetched } from "./documents.ts";
import { Fetcher } from "./fetcher.ts";
import { ArrangedLists, partOf } from "./lists.ts";
import { Notifier } from "./notifier.ts";
import type { Item, ListOptions, ListSnapshot, Snapshot, SyncPlane, Topics } from "./plane_port.ts";
import type { TopicSink, TopicSource } from "./source.ts";
import { Topic } from "./topic.ts";
import { TopicStore } from "./topic_store.ts";

export interface SyncOptions {
  readonly environment: Environment;
  readonly http: Http;
  readonly storage: Storage;
  readonly log: Log;
  /** A topic is used before the scope is known. */
  readonly onScopeNeeded?: () => void;
}

/** An unused topic is followed for this much longer, because screens come and go. */
const GRACE_MS = 5_000;

/** A topic in use. */
interface Used {
  readonly name: string;
  readonly view: TopicView;
  users: number;
  cancelGrace: () => void;
  /** Its documents in the current scope. */
  topic: Topic;
  life: AbortController;
  /** Aborts following the current source. */
  following: AbortController;
  loaded: boolean;
}

/** Opens the plane. Topics load once there is a scope, and follow once there is a source. */
export function openSync<T extends Topics>(options: SyncOptions): SyncPlane<T> {
  return new Plane(options);
}

class Plane implements SyncPlane {
  readonly #options: SyncOptions;
  readonly #used = new Map<string, Used>();
  readonly #notifier: Notifier;
  readonly #fetcher: Fetcher;
  #source: TopicSource | undefined;
  #scope: string | undefined;
  #storing = true;
  #closed = false;

  constructor(options: SyncOptions) {
    this.#options = options;
    this.#notifier = new Notifier(options.environment, options.log);
    this.#fetcher = new Fetcher(options.http, options.environment, options.log);
  }

  get(topic: string, key: string): Snapshot<never> {
    const used = this.#used.get(topic);
    // Only the app knows the document's type.
    return used ? (used.view.get(used.topic, key) as Snapshot<never>) : UNFOLLOWED;
  }

  list(topic: string, options: ListOptions<never> = {}): ListSnapshot<never> {
    const used = this.#used.get(partOf(topic, options.where));
    return used ? (used.view.list(used.topic, options) as ListSnapshot<never>) : UNFOLLOWED;
  }

  subscribe(
    topic: string,
    ...rest: [listener: () => void] | [key: string, listener: () => void]
  ): () => void {
    const [key, listener] = rest.length === 1 ? [undefined, rest[0]] : rest;
    const used = this.#use(topic);
    // The same function may be subscribed twice, so each subscription gets its own.
    const notify = () => listener();
    const stop = used.view.listen(key, notify);
    return once(() => {
      stop();
      this.#notifier.delete(notify);
      this.#release(used);
    });
  }

  async read<Doc>(key: string, { signal }: { readonly signal?: AbortSignal } = {}) {
    // Only the app knows the document's type.
    return (await readDocument(this.#options.http, key, signal)) as Item<Doc> | undefined;
  }

  ready(topic: string, { signal }: { readonly signal?: AbortSignal } = {}): Promise<void> {
    return new Promise((resolve, reject) => {
      const check = () => {
        const used = this.#used.get(topic);
        const { phase, error } = used?.topic.state ?? {};
        if (signal?.aborted) end(() => reject(signal.reason));
        else if (used?.topic.position()) end(resolve);
        else if (phase === "forbidden")
          end(() => reject(error ?? new KhalaError("forbidden_topic", `${topic} is not allowed.`)));
      };
      const end = (settle: () => void) => {
        stop();
        signal?.removeEventListener("abort", check);
        settle();
      };
      const stop = this.subscribe(topic, check);
      signal?.addEventListener("abort", check);
      check();
    });
  }

  follow(topic: string, sink: TopicSink, signal: AbortSignal): void {
    if (signal.aborted) return;
    const used = this.#use(topic);
    let mirrored: Topic | undefined;
    // A changed scope has a new topic: the mirror follows that one.
    const mirror = () => {
      if (used.topic !== mirrored) used.topic.mirror(sink, signal);
      mirrored = used.topic;
    };
    const stop = used.view.listen(undefined, mirror);
    mirror();
    const end = once(() => {
      stop();
      this.#release(used);
    });
    signal.addEventListener("abort", end, { once: true });
  }

  setSource(source: TopicSource | undefined): void {
    this.#source = source;
    for (const used of this.#used.values()) this.#follow(used);
  }

  setStoring(storing: boolean): void {
    const begins = storing && !this.#storing;
    this.#storing = storing;
    if (begins)
      for (const { topic, loaded } of this.#used.values()) if (loaded) this.#watch(topic.storeAll());
  }

  setScope(scope: string): void {
    if (scope === this.#scope || this.#closed) return;
    this.#scope = scope;
    for (const used of this.#used.values()) {
      this.#renew(used);
      this.#load(used);
    }
  }

  unidentified(error: KhalaError): void {
    if (this.#scope !== undefined) return;
    const phase = error.meaning.status === 401 ? "forbidden" : "offline";
    for (const { topic } of this.#used.values()) topic.phase(phase, error);
  }

  /** Keeps the documents: a list that is emptied on close would flash. */
  close(): void {
    this.#closed = true;
    for (const used of this.#used.values()) this.#stop(used);
  }

  #use(name: string): Used {
    let used = this.#used.get(name);
    if (!used) {
      const life = new AbortController();
      const following = new AbortController();
      const view = new TopicView();
      used = {
        name,
        view,
        users: 0,
        cancelGrace: () => {},
        topic: this.#topic(name, view, life),
        life,
        following,
        loaded: false,
      };
      this.#used.set(name, used);
      this.#load(used);
    }
    used.users++;
    used.cancelGrace();
    return used;
  }

  #release(used: Used): void {
    if (--used.users > 0) return;
    if (used.life.signal.aborted) return this.#end(used);
    used.cancelGrace = this.#options.environment.timer(GRACE_MS, () => this.#end(used));
  }

  #stop(used: Used): void {
    used.cancelGrace();
    used.following.abort();
    used.life.abort();
  }

  #end(used: Used): void {
    this.#stop(used);
    if (this.#used.get(used.name) === used) this.#used.delete(used.name);
  }

  #topic(name: string, view: TopicView, life: AbortController): Topic {
    const { storage, environment, log } = this.#options;
    const store = new TopicStore({
      storage,
      scope: this.#scope ?? "",
      topic: name,
      environment,
      log,
      storing: () => this.#storing && !life.signal.aborted,
    });
    const topic: Topic = new Topic({
      store,
      environment,
      onChange: (keys) => this.#notifier.add(view.listenersFor(keys)),
      onUnfetched: (key) => this.#fetcher.add(topic, key, life.signal),
    });
    return topic;
  }

  /** Starts again without documents. */
  #renew(used: Used): void {
    used.life.abort();
    used.following.abort();
    used.life = new AbortController();
    used.topic = this.#topic(used.name, used.view, used.life);
    used.loaded = false;
    this.#notifier.add(used.view.listenersFor([]));
  }

  #load(used: Used): void {
    if (this.#scope === undefined) return this.#options.onScopeNeeded?.();
    const { topic } = used;
    this.#watch(
      topic.load().then(() => {
        if (used.topic !== topic) return;
        used.loaded = true;
        this.#follow(used);
      }),
    );
  }

  #follow(used: Used): void {
    used.following.abort();
    used.following = new AbortController();
    if (this.#source && used.loaded && !used.life.signal.aborted)
      this.#source.follow(used.name, used.topic, used.following.signal);
  }

  #watch(work: Promise<void>): void {
    work.catch((error: unknown) =>
      this.#options.log({
        level: "error",
        event: "sync_failed",
        message: "A topic could not be loaded or stored.",
        error,
      }),
    );
  }
}

function once(work: () => void): () => void {
  let done = false;
  return () => {
    if (!done) work();
    done = true;
  };
}

/** The snapshot of a topic that is not followed. */
const UNFOLLOWED: Snapshot<never> & ListSnapshot<never> = Object.freeze({
  phase: "loading",
  stale: false,
  items: Object.freeze([]),
});

/** Stable snapshots of a topic, and its listeners. */
class TopicView {
  readonly #snapshots = new WeakMap<Entry, Snapshot>();
  /** The snapshot of documents that do not exist. */
  #absent: Snapshot = UNFOLLOWED;
  readonly #listeners = new Set<() => void>();
  readonly #keyListeners = new Map<string, Set<() => void>>();
  #list: ListSnapshot = UNFOLLOWED;
  readonly #arranged = new ArrangedLists();

  /** Adds a listener to the topic, or to one document. */
  listen(key: string | undefined, listener: () => void): () => void {
    if (key === undefined) {
      this.#listeners.add(listener);
      return () => this.#listeners.delete(listener);
    }
    const listeners = this.#keyListeners.get(key) ?? new Set();
    this.#keyListeners.set(key, listeners.add(listener));
    return () => {
      listeners.delete(listener);
      if (listeners.size === 0 && this.#keyListeners.get(key) === listeners) this.#keyListeners.delete(key);
    };
  }

  /** The listeners of a change. Without keys, the whole topic changed. */
  *listenersFor(keys: readonly string[]): Iterable<() => void> {
    yield* this.#listeners;
    if (keys.length === 0) for (const listeners of this.#keyListeners.values()) yield* listeners;
    else if (this.#keyListeners.size > 0) for (const key of keys) yield* this.#keyListeners.get(key) ?? [];
  }

  get(topic: Topic, key: string): Snapshot {
    const entry = topic.documents.get(key);
    const before = entry ? this.#snapshots.get(entry) : this.#absent;
    const { phase, error } = topic.state;
    if (before?.phase === phase && before.error === error) return before;
    const shown = entry?.item && { data: entry.item.data, version: entry.item.version };
    const stale = entry !== undefined && isUnfetched(entry);
    const snapshot: Snapshot = { ...shown, phase, ...(error && { error }), stale };
    if (entry) this.#snapshots.set(entry, snapshot);
    else this.#absent = snapshot;
    return snapshot;
  }

  list(topic: Topic, options: ListOptions<never>): ListSnapshot {
    const items = topic.documents.items();
    const { phase, error } = topic.state;
    const { items: shown, phase: shownPhase, error: shownError } = this.#list;
    if (shown !== items || shownPhase !== phase || shownError !== error)
      this.#list = { items, phase, ...(error && { error }) };
    return this.#arranged.get(this.#list, options);
  }
}
