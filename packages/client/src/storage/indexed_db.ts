import { KhalaError } from "@khala/contracts";
import { isAt, isCursor, isDocument, OutdatedChange, oneAtATime } from "./driver_support.ts";
import type { Storage, StoredDocument, StoredTopic, TopicChange } from "./storage.ts";

/** Raised when the schema changes. Data of an older version is dropped and read from the server again. */
const VERSION = 1;
const DOCUMENTS = "documents";
const CURSORS = "cursors";
/** Documents per read: more would block the page. */
const PAGE = 2_000;
const PUT_AT_ONCE = 500;

export interface IndexedDbOptions {
  /** The name of the database. */
  readonly name?: string;
  /** Default: the browser's. */
  readonly factory?: IndexedDbLike;
  readonly keyRange?: KeyRangeLike;
}

/** Stores documents in the browser's IndexedDB: one transaction per commit, hundreds of thousands of documents. */
export function indexedDb(options: IndexedDbOptions = {}): Storage {
  const connection = keepOpen(options);
  const run = oneAtATime("IndexedDB");

  /** All keys with this prefix: an array sorts after every string. */
  const under = (...prefix: string[]) => connection.keyRange().bound(prefix, [...prefix, []]);

  async function load(scope: string, topic: string): Promise<StoredTopic | undefined> {
    return connection.transact("readonly", async (transaction) => {
      const cursor = await resultOf(transaction.objectStore(CURSORS).get([scope, topic]));
      if (!isCursor(cursor)) return undefined;
      const documents: StoredDocument[] = [];
      for (let range = under(scope, topic); ; ) {
        const page = await resultOf(transaction.objectStore(DOCUMENTS).getAll(range, PAGE));
        if (!page.every(isDocument)) return undefined;
        for (const document of page) documents.push(document);
        const last = page.at(-1);
        if (!last || page.length < PAGE) return { documents, cursor };
        range = connection.keyRange().bound([scope, topic, last.key], [scope, topic, []], true);
      }
    });
  }

  async function commit(scope: string, topic: string, change: TopicChange): Promise<void> {
    const { after, put, remove, cursor } = change;
    await connection.transact("readwrite", async (transaction) => {
      const cursors = transaction.objectStore(CURSORS);
      if (after && !isAt(await resultOf(cursors.get([scope, topic])), after)) throw new OutdatedChange();
      const documents = transaction.objectStore(DOCUMENTS);
      if (!after) documents.delete(under(scope, topic));
      for (const key of remove) documents.delete([scope, topic, key]);
      for (const [n, document] of put.entries()) {
        const request = documents.put(document, [scope, topic, document.key]);
        // Yields at intervals, so that thousands of documents do not block the page.
        if (n % PUT_AT_ONCE === PUT_AT_ONCE - 1) await resultOf(request);
      }
      cursors.put(cursor, [scope, topic]);
    });
  }

  async function clear(...prefix: string[]): Promise<void> {
    await connection.transact("readwrite", async (transaction) => {
      for (const store of [CURSORS, DOCUMENTS]) transaction.objectStore(store).delete(under(...prefix));
    });
  }

  return {
    load: (scope, topic) => run(() => load(scope, topic)),
    commit: (scope, topic, change) => run(() => commit(scope, topic, change)),
    clear: (scope, topic) => run(() => clear(...[scope, topic].filter((part) => part !== undefined))),
    close: () => run(async () => connection.close()),
  };
}

/** One connection, opened on demand, and again after the browser or a newer version of the page closed it. */
function keepOpen({ name = "khala", factory, keyRange }: IndexedDbOptions) {
  let opening: Promise<Db> | undefined;
  // Looked up on use, so that server-side rendering does not fail.
  const browser = () => globalThis as { indexedDB?: IndexedDbLike; IDBKeyRange?: KeyRangeLike };

  function reset(): void {
    opening = undefined;
  }

  function opened(): Promise<Db> {
    const from = factory ?? browser().indexedDB;
    if (!from) return Promise.reject(missing());
    opening ??= open(from, name, reset).catch((error: unknown) => {
      reset();
      throw error;
    });
    return opening;
  }

  async function begin(mode: "readonly" | "readwrite"): Promise<Transaction> {
    try {
      return (await opened()).transaction([DOCUMENTS, CURSORS], mode);
    } catch (error) {
      // Closed by the browser, without an event so far.
      if (!(error instanceof Error) || error.name !== "InvalidStateError") throw error;
      reset();
      return (await opened()).transaction([DOCUMENTS, CURSORS], mode);
    }
  }

  return {
    keyRange(): KeyRangeLike {
      const found = keyRange ?? browser().IDBKeyRange;
      if (!found) throw missing();
      return found;
    },

    /** Resolves when the transaction is complete. Any error aborts it. */
    async transact<T>(
      mode: "readonly" | "readwrite",
      work: (transaction: Transaction) => Promise<T>,
    ): Promise<T> {
      const transaction = await begin(mode);
      let failure: unknown;
      const complete = new Promise<void>((resolve, reject) => {
        transaction.oncomplete = () => resolve();
        transaction.onabort = () =>
          reject(failure ?? transaction.error ?? new Error("the transaction was aborted"));
      });
      const result = work(transaction).catch((error: unknown) => {
        failure = error;
        try {
          transaction.abort();
        } catch {
          // Already finished; `complete` reports the result.
        }
        throw error;
      });
      const [done] = await Promise.all([result, complete]);
      return done;
    },

    async close(): Promise<void> {
      const db = await opening;
      reset();
      db?.close();
    },
  };
}

function open(factory: IndexedDbLike, name: string, lost: () => void): Promise<Db> {
  return new Promise<Db>((resolve, reject) => {
    const request = factory.open(name, VERSION);
    let blocked = false;
    request.onupgradeneeded = () => {
      const db = request.result;
      for (const store of Array.from(db.objectStoreNames)) db.deleteObjectStore(store);
      db.createObjectStore(DOCUMENTS);
      db.createObjectStore(CURSORS);
    };
    request.onblocked = () => {
      blocked = true;
      reject(new Error("another tab has an older version of the database open: reload or close that tab"));
    };
    request.onerror = () => reject(request.error);
    request.onsuccess = () => {
      const db = request.result;
      // The caller got the error and opens it again.
      if (blocked) return db.close();
      db.onclose = lost;
      // A newer version of the page waits for this connection to close.
      db.onversionchange = () => {
        lost();
        db.close();
      };
      resolve(db);
    };
  });
}

function resultOf<T>(request: Request<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

function missing(): KhalaError {
  return new KhalaError(
    "unavailable",
    "This platform has no IndexedDB. Use another storage, such as memory().",
  );
}

/** The part of IndexedDB that is used, so that the client needs no DOM types. */
export interface IndexedDbLike {
  open(name: string, version: number): OpenRequest;
}

export interface KeyRangeLike {
  bound(lower: unknown, upper: unknown, lowerOpen?: boolean, upperOpen?: boolean): unknown;
}

export interface Request<T = unknown> {
  readonly result: T;
  readonly error: unknown;
  onsuccess: ((event: never) => unknown) | null;
  onerror: ((event: never) => unknown) | null;
}

export interface OpenRequest extends Request<Db> {
  onupgradeneeded: ((event: never) => unknown) | null;
  onblocked: ((event: never) => unknown) | null;
}

export interface Db {
  readonly objectStoreNames: ArrayLike<string>;
  createObjectStore(name: string): unknown;
  deleteObjectStore(name: string): void;
  transaction(stores: string[], mode: "readonly" | "readwrite"): Transaction;
  close(): void;
  onclose: ((event: never) => unknown) | null;
  onversionchange: ((event: never) => unknown) | null;
}

export interface Transaction {
  readonly error: unknown;
  objectStore(name: string): Store;
  abort(): void;
  oncomplete: ((event: never) => unknown) | null;
  onabort: ((event: never) => unknown) | null;
}

export interface Store {
  get(key: unknown): Request;
  getAll(range: unknown, count: number): Request<unknown[]>;
  put(value: unknown, key: unknown): Request;
  delete(keyOrRange: unknown): Request;
}
