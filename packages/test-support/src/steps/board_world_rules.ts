import type { Artifact } from "@khala/server";

/** The payload of an artifact of the chaos test: its place among those of its key. */
export interface Note {
  readonly key: string;
  readonly n: number;
}

/** The moment a bomb ends its process: before or after its work, or never. */
export interface Bomb {
  readonly moment?: "before" | "after";
}

/** The prefixes of keys. */
export const KEY = "key-";

export const noteOf = ({ payload }: Pick<Artifact, "payload">) => payload as Partial<Note> as Note;
export const bombOf = ({ payload }: Pick<Artifact, "payload">) => payload as Bomb;

/** Notes whose review always fails. */
export const isFatal = ({ n }: Note): boolean => n % 20 === 7;

/** Notes whose first review fails: some of every key, and rarely several in a row, which would open a breaker. */
export const isFlaky = ({ key, n }: Note): boolean => (Number(key.slice(KEY.length)) + 7 * n) % 10 === 3;

/** Leaves with which only the last server comes to an end. */
export const isLasting = ({ n }: Pick<Note, "n">): boolean => n % 10 === 3;
