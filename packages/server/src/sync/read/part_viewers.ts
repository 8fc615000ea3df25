import type { Model } from "../model.ts";
import { KEY_FIELD } from "../model_fields.ts";
import { docKeyOf, partLabel, partName, type TopicPart } from "../part.ts";
import type { JournalRow } from "./journal.ts";
import { type EncodedUpdate, encodeUpdate } from "./update_codec.ts";
import { type Viewer, Viewers } from "./viewers.ts";

/** The viewer of a part of a topic. */
export interface PartViewer extends Viewer {
  readonly part?: TopicPart | undefined;
}

/** Rows for a part, and those who follow it. */
interface PartShare<S extends PartViewer> {
  readonly name: string;
  readonly updates: readonly EncodedUpdate[];
  readonly viewers: Viewers<S>;
}

/** Live subscriptions of parts of one topic. Those that a row is for are found by its parts, however many others there are. */
export class PartViewers<S extends PartViewer> {
  readonly #topic: string;
  readonly #parts = new Map<string, { readonly part: TopicPart; readonly viewers: Viewers<S> }>();
  /** The sets of fields that followed parts have, with how many parts each. */
  readonly #fields = new Map<string, { readonly names: readonly string[]; parts: number }>();
  #size = 0;

  constructor({ topic }: Pick<Model, "topic">) {
    this.#topic = topic;
  }

  get size(): number {
    return this.#size;
  }

  add(member: S & { readonly part: TopicPart }): void {
    const key = keyOf(member.org, member.part.map(partLabel));
    const found = this.#parts.get(key) ?? { part: member.part, viewers: new Viewers<S>() };
    if (!this.#parts.has(key)) this.#count(member.part, 1);
    this.#parts.set(key, found);
    this.#size -= found.viewers.size;
    found.viewers.add(member);
    this.#size += found.viewers.size;
  }

  delete(member: S & { readonly part: TopicPart }): void {
    const key = keyOf(member.org, member.part.map(partLabel));
    const found = this.#parts.get(key);
    if (!found) return;
    this.#size -= found.viewers.size;
    found.viewers.delete(member);
    this.#size += found.viewers.size;
    if (found.viewers.size > 0) return;
    this.#parts.delete(key);
    this.#count(found.part, -1);
  }

  #count(part: TopicPart, parts: 1 | -1): void {
    const names = part.map(({ field }) => field);
    const counted = this.#fields.get(names.join()) ?? { names, parts: 0 };
    counted.parts += parts;
    if (counted.parts > 0) this.#fields.set(names.join(), counted);
    else this.#fields.delete(names.join());
  }

  *[Symbol.iterator](): Generator<S> {
    for (const { viewers } of this.#parts.values()) yield* viewers;
  }

  /** The parts that a row may be for: the combinations of its values, before and after, for each set of fields that is followed. */
  *#keysOf({ org, docKey, parts, leftParts }: JournalRow): Generator<string> {
    const labels = [`${KEY_FIELD}=${docKey}`, ...(parts ?? []), ...(leftParts ?? [])];
    const byField = Map.groupBy(labels, (label) => label.slice(0, label.indexOf("=")));
    for (const { names } of this.#fields.values()) {
      let combined: readonly string[][] = [[]];
      for (const name of names)
        combined = combined.flatMap((one) => (byField.get(name) ?? []).map((label) => [...one, label]));
      for (const one of combined) yield keyOf(org, one);
    }
  }

  /** The followed parts that rows are for, with their rows. */
  *split(updates: readonly EncodedUpdate[]): Generator<PartShare<S>> {
    const shares = new Map<string, { readonly part: TopicPart; readonly own: EncodedUpdate[] }>();
    for (const update of updates) {
      for (const key of this.#keysOf(update.row)) {
        const part = this.#parts.get(key)?.part;
        const seen = part && inPart(this.#topic, update, part);
        if (!seen) continue;
        const share = shares.get(key) ?? { part, own: [] };
        shares.set(key, share);
        share.own.push(seen);
      }
    }
    for (const [key, { part, own }] of shares) {
      const viewers = this.#parts.get(key)?.viewers;
      if (viewers) yield { name: partName(this.#topic, part), updates: own, viewers };
    }
  }
}

/** Documents that left a part, encoded once for all who follow it. */
const left = new WeakMap<EncodedUpdate, EncodedUpdate>();

/** A row as those see it who follow a part: a document that left it is deleted. Undefined for a row of other parts. */
export function inPart(topic: string, update: EncodedUpdate, part: TopicPart): EncodedUpdate | undefined {
  const { row } = update;
  const docKey = docKeyOf(part);
  if (docKey !== undefined) return row.docKey === docKey ? update : undefined;
  const labels = part.map(partLabel);
  const isIn = (label: string) => row.parts?.includes(label) ?? false;
  if (labels.every(isIn)) return update;
  // Of several fields, it may have got one value as it lost another: then it was not in this part, and the deletion says nothing new.
  if (!labels.every((label) => isIn(label) || row.leftParts?.includes(label))) return undefined;
  if (row.op === "delete") return update;
  const known = left.get(update);
  if (known) return known;
  const gone = encodeUpdate(
    topic,
    { ...row, op: "delete", payload: null, payloadHash: null, payloadBytes: 0 },
    0,
  );
  left.set(update, gone);
  return gone;
}

/** Whether it is unknown if a row is in a part: another version of the model wrote it. */
export function isInUnknownParts(row: JournalRow, part: TopicPart): boolean {
  return docKeyOf(part) === undefined && !row.parts;
}

function keyOf(org: string, labels: readonly string[]): string {
  // None can hold NUL.
  return [org, ...labels].join("\0");
}
