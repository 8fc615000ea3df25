import type { Model } from "../model.ts";
import { KEY_FIELD } from "../model_fields.ts";
import { partLabel, partName, type TopicPart } from "../part.ts";
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
  #size = 0;

  constructor({ topic }: Pick<Model, "topic">) {
    this.#topic = topic;
  }

  get size(): number {
    return this.#size;
  }

  add(member: S & { readonly part: TopicPart }): void {
    const key = keyOf(member.org, partLabel(member.part));
    const found = this.#parts.get(key) ?? { part: member.part, viewers: new Viewers<S>() };
    this.#parts.set(key, found);
    this.#size -= found.viewers.size;
    found.viewers.add(member);
    this.#size += found.viewers.size;
  }

  delete(member: S & { readonly part: TopicPart }): void {
    const key = keyOf(member.org, partLabel(member.part));
    const found = this.#parts.get(key);
    if (!found) return;
    this.#size -= found.viewers.size;
    found.viewers.delete(member);
    this.#size += found.viewers.size;
    if (found.viewers.size === 0) this.#parts.delete(key);
  }

  *[Symbol.iterator](): Generator<S> {
    for (const { viewers } of this.#parts.values()) yield* viewers;
  }

  /** The followed parts that rows are for, with their rows. */
  *split(updates: readonly EncodedUpdate[]): Generator<PartShare<S>> {
    const shares = new Map<string, { readonly part: TopicPart; readonly own: EncodedUpdate[] }>();
    for (const update of updates) {
      for (const label of labelsOf(update.row)) {
        const key = keyOf(update.row.org, label);
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
  if (part.field === KEY_FIELD) return row.docKey === part.value ? update : undefined;
  const label = partLabel(part);
  if (row.parts?.includes(label)) return update;
  if (!row.leftParts?.includes(label)) return undefined;
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
export function isInUnknownParts(row: JournalRow, { field }: TopicPart): boolean {
  return field !== KEY_FIELD && !row.parts;
}

function labelsOf({ docKey, parts, leftParts }: JournalRow): readonly string[] {
  return [`${KEY_FIELD}=${docKey}`, ...(parts ?? []), ...(leftParts ?? [])];
}

function keyOf(org: string, label: string): string {
  // Neither can hold NUL.
  return `${org}\0${label}`;
}
