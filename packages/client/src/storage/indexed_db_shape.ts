/** The parts of IndexedDB that are used, so that the client needs no types of a browser. */
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
