import { deepStrictEqual } from "node:assert/strict";
import type { AuthorityEvent, Model, StreamDefinition } from "@khala/server";
import { applyEvent, checkEventData, systemClock } from "@khala/server/testing";
import type { DataInput } from "./data_input.ts";

/** What may be said of an event beside its type and data. */
interface EventContext {
  /** The id of its stream; default "1". */
  readonly id?: string;
  /** The kind of its stream: needed only where two streams of the model have an event of this type. */
  readonly kind?: string;
  /** Who appended it; default "ada". The first one owns the stream. */
  readonly actor?: string;
  /** Default "demo". */
  readonly org?: string;
  /** RFC 3339; default 2026-01-01T00:00:00.000Z. */
  readonly at?: string;
}

/** An event as a test gives it: of a type of the model's streams, with the data that its schema takes. */
export type GivenEvent<Stream extends StreamDefinition = StreamDefinition> = Stream extends StreamDefinition
  ? {
      [Type in keyof Stream["events"] & string]: EventContext & { readonly type: Type } & (Record<
          never,
          never
        > extends DataInput<Stream["events"][Type]>
          ? { readonly data?: DataInput<Stream["events"][Type]> }
          : { readonly data: DataInput<Stream["events"][Type]> });
    }[keyof Stream["events"] & string]
  : never;

/** A document that a model made. */
export interface TestedDocument<Document> {
  readonly key: string;
  readonly org: string;
  readonly version: number;
  readonly data: Document;
  /** Who may see it; null is the whole org. */
  readonly audience: readonly string[] | null;
}

/** A model with the events that were given to it. */
export interface TestedModel<Document, Event> {
  /** The same model after more events. */
  given(events: Event | readonly Event[]): TestedModel<Document, Event>;
  /** Throws unless this is the model's only document now; null: there is none. */
  expect(document: Document | null): Promise<void>;
  /** Throws unless the document of this key (`<prefix>:<id>`) is this one; null: there is none. */
  expectAt(key: string, document: Document | null): Promise<void>;
  /** All documents, by key. Throws what the model, or the schema of an event, throws. */
  documents(): Promise<TestedDocument<Document>[]>;
}

/** Tests a model: its events are checked by their schemas, then folded into documents as the server does it. */
export function testModel<
  Document extends object,
  Topic extends string,
  const Streams extends readonly StreamDefinition[],
>(model: Model<Document, Topic, Streams>): TestedModel<Document, GivenEvent<Streams[number]>> {
  return modelAfter(model, []);
}

function modelAfter<Document extends object, Event extends GivenEvent>(
  model: Model<Document>,
  before: readonly Event[],
): TestedModel<Document, Event> {
  async function documents(): Promise<TestedDocument<Document>[]> {
    const current = new Map<
      string,
      Parameters<typeof applyEvent>[2] extends Map<string, infer C> ? C : never
    >();
    const documentsNow = new Map<string, TestedDocument<Document>>();
    for (const event of await recorded(model, before)) {
      // BrokenProjection wraps what the model threw in words for operators.
      const write = unwrapped(() => applyEvent(model, event, current));
      if (!write) continue;
      const { docKey: key, docVersion, org, audience } = write;
      if (write.op === "delete") documentsNow.delete(`${org} ${key}`);
      else {
        const data = JSON.parse(write.payload ?? "null") as Document;
        documentsNow.set(`${org} ${key}`, { key, org, version: Number(docVersion), data, audience });
      }
    }
    return [...documentsNow.values()].sort((a, b) => (a.key < b.key ? -1 : 1));
  }
  return {
    given: (events) => modelAfter(model, [...before, ...[events].flat()] as Event[]),
    documents,
    async expect(document) {
      const all = await documents();
      if (all.length > 1)
        throw new Error(
          `There are ${all.length} documents: ${all.map(({ key }) => key).join(", ")}. Use expectAt(key, document).`,
        );
      deepStrictEqual(all[0]?.data ?? null, asJson(document));
    },
    async expectAt(key, document) {
      const found = (await documents()).find((each) => each.key === key);
      deepStrictEqual(found?.data ?? null, asJson(document));
    },
  };
}

/** What JSON keeps: a document is stored as such. */
function asJson(value: unknown): unknown {
  return JSON.parse(JSON.stringify(value));
}

function unwrapped<T>(work: () => T): T {
  try {
    return work();
  } catch (error) {
    throw (error as Error).cause ?? error;
  }
}

async function recorded(model: Model, given: readonly GivenEvent[]): Promise<AuthorityEvent[]> {
  const streams = new Map<string, { owner: string; seq: bigint }>();
  const events: AuthorityEvent[] = [];
  for (const [i, { type, data = {}, ...more }] of given.entries()) {
    const { id: streamId = "1", actor = "ada", org = "demo", at = "2026-01-01T00:00:00.000Z" } = more;
    const stream = streamOf(model, type, more.kind);
    const name = `${org} ${stream.kind} ${streamId}`;
    const { owner, seq } = streams.get(name) ?? { owner: actor, seq: 0n };
    streams.set(name, { owner, seq: seq + 1n });
    const checked = await checkEventData(stream, type, data as never, `events[${i}]`, systemClock);
    events.push({
      ...{ position: BigInt(i + 1), kind: stream.kind, streamId, seq: seq + 1n, type },
      // As it is stored.
      data: asJson(checked) as AuthorityEvent["data"],
      ...{ org, owner, actor, at, trace: null },
    });
  }
  return events;
}

function streamOf({ topic, streams }: Model, type: string, kind: string | undefined): StreamDefinition {
  const found = streams.filter(
    (stream) => Object.hasOwn(stream.events, type) && (kind === undefined || stream.kind === kind),
  );
  if (found.length === 1) return found[0]!;
  const types = streams.flatMap(({ events }) => Object.keys(events)).join(", ");
  throw new TypeError(
    found.length === 0
      ? `The streams of ${topic} have no event "${type}". Use one of: ${types}.`
      : `Several streams of ${topic} have an event "${type}". Say which by \`kind\`: ${found.map((stream) => stream.kind).join(", ")}.`,
  );
}
