import { KhalaError } from "@khala/contracts";
import type { Cursor, Storage, StoredDocument, TopicChange } from "./storage.ts";

/** A driver under test, with an empty store. */
export interface StorageUnderTest {
  /** Opens a storage on the store. Opened again after `close`, a persistent one has the committed state. */
  open(): Promise<Storage>;
  /** False for a storage in memory. */
  readonly persistent: boolean;
  /** Runs the work with the store failing at its n-th step, from 0. Resolves with whether there was such a step. */
  failing?(step: number, work: () => Promise<void>): Promise<boolean>;
  /** Corrupts a stored topic, so that it cannot be read. */
  corrupt?(scope: string, topic: string): Promise<void>;
}

/** A topic, two people, and positions, for the checks. */
export const T = "runtime.run_summaries";
export const A = "https://khala.example.com org-1 ana";
export const B = "https://khala.example.com org-1 ben";
export const at = (watermark: number, epoch = "e1") => ({ epoch, watermark: String(watermark) });

/** The documents of a made-up history at a watermark: each step changes one of ten, and every seventh removes one. */
function historyAt(watermark: number): StoredDocument[] {
  const documents = new Map<string, StoredDocument>();
  for (let n = 1; n <= watermark; n++) {
    if (n % 7 === 0) documents.delete(`k${(n * 3) % 10}`);
    else documents.set(`k${n % 10}`, puts([`k${n % 10}`], n)[0]!);
  }
  return [...documents.values()];
}

/** The stored state of a client that followed the history from one watermark to another. */
function changesBetween(from: number, to: number): Pick<TopicChange, "put" | "remove"> {
  const before = new Map(historyAt(from).map((document) => [document.key, canonical(document)]));
  const after = historyAt(to);
  const there = new Set(after.map(({ key }) => key));
  return {
    put: after.filter((document) => before.get(document.key) !== canonical(document)),
    remove: [...before.keys()].filter((key) => !there.has(key)),
  };
}

/** Clients follow one history and store it, while others clear what they stored. What is stored is always a true state of it. */
export async function randomChanges(under: StorageUnderTest, seed: number): Promise<void> {
  let state = seed;
  const random = (below: number) => {
    state = (state * 48_271) % 2_147_483_647;
    return state % below;
  };
  const topics = [T, "conversation:1", "conversation:2"];
  const clients = await Promise.all(
    range(3).map(async () => ({ storage: await under.open(), stored: new Map<string, number>(), at: 0 })),
  );
  for (const _step of range(150)) {
    const client = clients[random(3)]!;
    const topic = topics[random(3)]!;
    const { storage, stored } = client;
    client.at += random(3);
    const from = stored.get(topic);
    const what = random(10);
    if (what === 0) await storage.clear(...[[], [A], [A, topic]][random(3)]!);
    else if (what === 1) {
      const loaded = await storage.load(A, topic);
      if (loaded && Number(loaded.cursor.watermark) <= client.at)
        stored.set(topic, Number(loaded.cursor.watermark));
    } else if (from === undefined || what === 2) {
      const whole = { replace: true, put: historyAt(client.at), remove: [], cursor: at(client.at) } as const;
      await storage.commit(A, topic, whole);
      stored.set(topic, client.at);
    } else {
      const change = { after: at(from), ...changesBetween(from, client.at), cursor: at(client.at) };
      const isStored = (await storage.load(A, topic))?.cursor.watermark === String(from);
      const commit = storage.commit(A, topic, change);
      if (!isStored) await refused(commit);
      else await commit;
      if (isStored) stored.set(topic, client.at);
      else stored.delete(topic);
    }
    for (const each of topics) {
      const loaded = await storage.load(A, each);
      if (loaded)
        await expectSame(storage, A, each, historyAt(Number(loaded.cursor.watermark)), loaded.cursor);
    }
  }
  for (const { storage } of clients) await storage.close();
}

/** The storage opened again, if it keeps anything. */
export async function reopened(under: StorageUnderTest, storage: Storage): Promise<Storage> {
  if (!under.persistent) return storage;
  await storage.close();
  return under.open();
}

/** Documents with a version and a payload made from n. */
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

/** Throws unless the condition holds. The suite depends on no test runner. */
export function ensure(holds: boolean, otherwise: string): asserts holds {
  if (!holds) throw new Error(`The storage breaks its promise: ${otherwise}.`);
}

/** Resolves when the work failed. */
export async function failure(work: Promise<unknown>): Promise<void> {
  const failed = await work.then(
    () => false,
    () => true,
  );
  ensure(failed, "it did not fail");
}

/** Resolves when the change was refused because it does not continue the stored state. */
export async function refused(work: Promise<unknown>): Promise<void> {
  const error = await work.then(
    () => undefined,
    (cause: unknown) => cause,
  );
  ensure(
    error instanceof KhalaError && error.code === "sequence_conflict",
    `it was not refused with sequence_conflict, but ${error ? `failed: ${error}` : "stored"}`,
  );
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
