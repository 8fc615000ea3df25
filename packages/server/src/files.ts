export { type ByteRange, type FileKey, type FileStore, inPieces } from "./conversations/files/file_store.ts";
export type { Clock } from "./kit/clock.ts";
