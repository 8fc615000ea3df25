export { type AsyncStorageLike, type AsyncStorageOptions, asyncStorage } from "./storage/async_storage.ts";
export { type StorageCheck, storageConformance } from "./storage/conformance.ts";
export type { StorageUnderTest } from "./storage/conformance_support.ts";
export { type IndexedDbOptions, indexedDb } from "./storage/indexed_db.ts";
export { type LocalStorageLike, type LocalStorageOptions, localStorage } from "./storage/local_storage.ts";
export { memory } from "./storage/memory.ts";
export { type SqliteAsync, type SqliteSync, sqlite } from "./storage/sqlite.ts";
export type { Cursor, Storage, StoredDocument, StoredTopic, TopicChange } from "./storage/storage.ts";
