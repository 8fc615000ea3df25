import {
  isAt,
  isCursor,
  isDocument,
  isObject,
  OutdatedChange,
  oneAtATime,
  parseJson,
} from "./driver_support.ts";
import type { Cursor, Storage, StoredDocument, StoredTopic, TopicChange } from "./storage.ts";

/** A key-value store of strings: what localStorage and AsyncStorage have in common. */
export interface TextStore {
  get(key: string): Promise<string | null | undefined>;
  /** In order; a failure may leave the first ones written. */
  set(entries: readonly (readonly [key: string, value: string])[]): Promise<void>;
  remove(keys: readonly string[]): Promise<void>;
  keys(): Promise<readonly string[]>;
}

export interface SegmentOptions {
  /** Names the store in messages. */
  readonly driver: string;
  readonly prefix: string;
  /** Distinguishes the segments of programs that write to the same store. */
  readonly writer: string;
  /** Maximum characters of a value. A larger document gets its own value. */
  readonly valueSize: number;
}

/** The changes of one or more commits. Later segments win; the oldest has no deletions. */
interface Segment {
  readonly parts: readonly string[];
  /** Characters of all parts. */
  readonly size: number;
}

/** The list of current segments. Replacing it, in one step, is the commit. */
interface Head {
  readonly cursor: Cursor;
  readonly segments: readonly Segment[];
  /** The number of the next part. */
  readonly next: number;
}

/** The result of a commit: unchanged segments, and the values of a new one. */
interface Plan {
  readonly kept: readonly Segment[];
  readonly texts: readonly string[];
}

type Entry = StoredDocument | { readonly gone: string };

/**
 * Stores documents in a key-value store, as a log-structured merge tree. A commit writes a new segment, then the head, so a crash
 * between the two changes nothing. Small segments are merged into larger ones, which keeps their number and the cost of a commit
 * logarithmic.
 */
export function segments(store: TextStore, { driver, prefix, writer, valueSize }: SegmentOptions): Storage {
  const run = oneAtATime(driver);
  /** Topics without unused values of an earlier crash. */
  const tidy = new Set<string>();
  const scopePrefix = (scope: string) => `${prefix}${JSON.stringify(scope)}:`;
  const topicPrefix = (scope: string, topic: string) => `${scopePrefix(scope)}${JSON.stringify(topic)}:`;

  async function open(base: string): Promise<Head | undefined> {
    const head = readHead(await store.get(`${base}head`));
    if (tidy.has(base)) return head;
    const used = new Set(head?.segments.flatMap(({ parts }) => parts.map((part) => base + part)));
    used.add(`${base}head`);
    await removeAll((key) => key.startsWith(base) && !used.has(key));
    tidy.add(base);
    return head;
  }

  async function removeAll(matches: (key: string) => boolean): Promise<void> {
    const keys = (await store.keys()).filter(matches);
    if (keys.length > 0) await store.remove(keys);
  }

  /** Undefined when something of it is missing or broken. */
  async function read(base: string, { parts }: Segment): Promise<readonly Entry[] | undefined> {
    const entries: Entry[] = [];
    for (const part of parts) {
      const value = parseJson(await store.get(base + part));
      if (!Array.isArray(value) || !value.every(isEntry)) return undefined;
      entries.push(...value);
    }
    return entries;
  }

  async function load(base: string): Promise<StoredTopic | undefined> {
    tidy.delete(base);
    const head = await open(base);
    if (!head) return undefined;
    const all = new Map<string, Entry>();
    for (const segment of head.segments) {
      const entries = await read(base, segment);
      if (!entries) {
        await drop((key) => key.startsWith(base));
        return undefined;
      }
      overlay(all, entries);
    }
    return { documents: [...all.values()].filter(isDocument), cursor: head.cursor };
  }

  async function commit(base: string, { after, put, remove, cursor }: TopicChange): Promise<void> {
    const before = await open(base);
    if (after && !isAt(before?.cursor, after)) throw new OutdatedChange();
    const changes = new Map<string, Entry>();
    overlay(changes, [...remove.map((gone) => ({ gone })), ...put]);
    const kept = (after && before?.segments) || [];
    const plain: Plan = { kept, texts: encode(changes, kept.length === 0, valueSize) };
    const merged = await merge(base, plain, changes);
    try {
      await write(base, before, merged, cursor);
    } catch (error) {
      // Merging needs room for old and new at once; where there is none, the change alone may still find some.
      if (merged === plain || !sameHead(before, await open(base))) throw error;
      await write(base, before, plain, cursor);
    }
  }

  /** Takes the last segments along, as long as they are not much larger than what comes after them. */
  async function merge(base: string, plain: Plan, changes: ReadonlyMap<string, Entry>): Promise<Plan> {
    let plan = plain;
    let all = changes;
    for (
      let last = plan.kept.at(-1);
      last && last.size <= 2 * lengthOf(plan.texts);
      last = plan.kept.at(-1)
    ) {
      const entries = await read(base, last);
      if (!entries) {
        // Older documents are lost, so the remaining ones with a newer cursor would be wrong.
        await drop((key) => key.startsWith(base));
        throw new Error("the stored topic was damaged and was removed; store it again completely");
      }
      const together = new Map<string, Entry>();
      overlay(together, entries);
      overlay(together, all.values());
      all = together;
      const kept = plan.kept.slice(0, -1);
      plan = { kept, texts: encode(all, kept.length === 0, valueSize) };
    }
    return plan;
  }

  async function write(base: string, before: Head | undefined, plan: Plan, cursor: Cursor): Promise<void> {
    let next = before?.next ?? 0;
    const parts = plan.texts.map(() => `${writer}${next++}`);
    const added = parts.length > 0 ? [{ parts, size: lengthOf(plan.texts) }] : [];
    const head: Head = { cursor, segments: [...plan.kept, ...added], next };
    // After a failure it is not known which of the values were written.
    tidy.delete(base);
    await store.set(parts.map((part, i) => [base + part, plan.texts[i]!] as const));
    await store.set([[`${base}head`, JSON.stringify(head)]]);
    tidy.add(base);
    const used = new Set(head.segments.flatMap((segment) => segment.parts));
    const old = (before?.segments ?? []).flatMap((segment) => segment.parts);
    const unused = old.filter((part) => !used.has(part)).map((part) => base + part);
    // The commit is done. What cannot be removed now is when the topic is opened the next time.
    if (unused.length > 0) await store.remove(unused).catch(() => tidy.delete(base));
  }

  async function drop(matches: (key: string) => boolean): Promise<void> {
    for (const base of [...tidy]) if (matches(base)) tidy.delete(base);
    // Heads first: without its head a topic counts as removed, whatever else is stored.
    await removeAll((key) => matches(key) && key.endsWith(":head"));
    await removeAll(matches);
  }

  return {
    load: (scope, topic) => run(() => load(topicPrefix(scope, topic))),
    commit: (scope, topic, change) => run(() => commit(topicPrefix(scope, topic), change)),
    clear: (scope, topic) =>
      run(() => {
        const start =
          scope === undefined ? prefix : topic === undefined ? scopePrefix(scope) : topicPrefix(scope, topic);
        return drop((key) => key.startsWith(start));
      }),
    close: () => run(async () => tidy.clear()),
  };
}

function overlay(onto: Map<string, Entry>, entries: Iterable<Entry>): void {
  for (const entry of entries) {
    const key = "gone" in entry ? entry.gone : entry.key;
    onto.set(key, entry);
  }
}

/** The entries as JSON, in values of a bounded size. Deletions from the oldest segment need not be remembered. */
function encode(entries: ReadonlyMap<string, Entry>, oldest: boolean, valueSize: number): string[] {
  const texts: string[] = [];
  let part: string[] = [];
  let size = 0;
  for (const entry of entries.values()) {
    if (oldest && "gone" in entry) continue;
    const text = JSON.stringify(entry);
    if (part.length > 0 && size + text.length > valueSize) {
      texts.push(`[${part.join()}]`);
      part = [];
      size = 0;
    }
    part.push(text);
    size += text.length + 1;
  }
  if (part.length > 0) texts.push(`[${part.join()}]`);
  return texts;
}

const sameHead = (one: Head | undefined, other: Head | undefined) =>
  JSON.stringify(one) === JSON.stringify(other);

const lengthOf = (texts: readonly string[]) => texts.reduce((sum, text) => sum + text.length, 0);

function isEntry(value: unknown): value is Entry {
  return isDocument(value) || (isObject(value) && typeof value.gone === "string");
}

function readHead(text: string | null | undefined): Head | undefined {
  const value = parseJson(text);
  if (!isObject(value) || !isCursor(value.cursor) || !Number.isSafeInteger(value.next)) return undefined;
  const { segments } = value;
  if (!Array.isArray(segments) || !segments.every(isSegment)) return undefined;
  const { epoch, watermark } = value.cursor;
  return { cursor: { epoch, watermark }, segments, next: value.next as number };
}

function isSegment(value: unknown): value is Segment {
  if (!isObject(value) || typeof value.size !== "number") return false;
  return Array.isArray(value.parts) && value.parts.every((part) => typeof part === "string");
}
