import type { Cursor, Storage, StoredDocument } from "./storage.ts";

/** Documents of a size that is usual, with a version and a payload made from n. */
export function puts(keys: readonly string[], n: number): StoredDocument[] {
  return keys.map((key) => ({
    key,
    version: String(n),
    hash: `hash-${n}`,
    payload: { n, key, status: "running" },
  }));
}

/** 0 to n - 1. */
export const range = (n: number) => Array.from({ length: n }, (_, i) => i);

/** Throws unless it holds: the suite belongs to no test runner. */
export function ensure(holds: boolean, otherwise: string): asserts holds {
  if (!holds) throw new Error(`The storage breaks its promise: ${otherwise}.`);
}

/** Resolves when the work was refused. */
export async function failure(work: Promise<unknown>): Promise<void> {
  const failed = await work.then(
    () => false,
    () => true,
  );
  ensure(failed, "it did not fail");
}

/** Throws unless the topic has exactly these documents, in any order, and this cursor. */
export async function expectSame(
  storage: Storage,
  scope: string,
  topic: string,
  documents: readonly StoredDocument[],
  cursor: Cursor,
): Promise<void> {
  const loaded = await storage.load(scope, topic);
  ensure(loaded !== undefined, "the topic is absent");
  const { epoch, watermark } = loaded.cursor;
  const wanted = `${cursor.epoch}/${cursor.watermark}`;
  ensure(`${epoch}/${watermark}` === wanted, `the cursor is ${epoch}/${watermark} and not ${wanted}`);
  const expected = new Map(documents.map((document) => [document.key, canonical(document)]));
  ensure(
    expected.size === loaded.documents.length,
    `${loaded.documents.length} documents, not ${expected.size}`,
  );
  for (const document of loaded.documents) {
    const found = canonical(document);
    const right = expected.get(document.key);
    ensure(found === right, `document ${document.key} is ${found} and not ${right}`);
  }
}

function canonical({ key, version, hash, updatedAt, payload, deleted }: StoredDocument): string {
  return JSON.stringify([
    key,
    version,
    hash,
    updatedAt ?? "none",
    payload === undefined ? "none" : [payload],
    deleted,
  ]);
}
