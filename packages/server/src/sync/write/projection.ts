import { canonicalJson } from "@khala/contracts";
import type { AuthorityEvent } from "../../events/stream.ts";
import { isKeyOf, MAX_KEY_BYTES, type Model, tombstone } from "../model.ts";
import type { CurrentDocument } from "../read/read_models.ts";
import type { DocumentWrite } from "./write_statement.ts";

/** The error of a projection: the event, and the cause. */
export class BrokenProjection extends Error {
  override readonly name = "BrokenProjection";
  readonly event: AuthorityEvent;

  constructor(model: Model, event: AuthorityEvent, cause: unknown) {
    const place = `event ${event.position} (${event.type}, ${event.kind} ${event.streamId}, sequence ${event.seq})`;
    super(`The projection of ${model.topic} failed at ${place}: ${(cause as Error)?.message ?? cause}`, {
      cause,
    });
    this.event = event;
  }
}

/** The document key of an event, or null when the model ignores it. */
function keyFor(model: Model, event: AuthorityEvent): string | null {
  if (!model.streams.some((stream) => stream.kind === event.kind)) return null;
  const id = model.id(event);
  if (id === null) return null;
  const docKey = `${model.prefix}:${id}`;
  if (isKeyOf(model, docKey)) return docKey;
  throw new TypeError(`an id is Unicode text without NUL of at most ${MAX_KEY_BYTES} bytes with its prefix`);
}

/** The documents that events change. A model whose `id` throws is broken at that event: `applyEvent` reports it. */
export function keysOf(model: Model, events: readonly AuthorityEvent[]): Set<string> {
  const keys = new Set<string>();
  try {
    for (const event of events) {
      const key = keyFor(model, event);
      if (key !== null) keys.add(key);
    }
  } catch {
    // Projection stops at that event.
  }
  return keys;
}

/**
 * Applies one event to `documents` and returns the write it makes, or undefined when nothing changes.
 * Throws BrokenProjection when the model throws or its document cannot be stored.
 */
export function applyEvent(
  model: Model,
  event: AuthorityEvent,
  documents: Map<string, CurrentDocument>,
): DocumentWrite | undefined {
  try {
    const docKey = keyFor(model, event);
    if (docKey === null) return undefined;
    const current = documents.get(docKey);
    const before = current?.document ?? null;
    const after = model.project(before, event);
    if (after === before || (before === null && (after === tombstone || after === null))) return undefined;
    // Not 1: the document may have existed before, and clients may still remember its versions.
    const docVersion = current ? current.version + 1n : event.seq;
    if (after === tombstone || after === null) {
      const { access } = current!;
      documents.set(docKey, { version: docVersion, document: null, access });
      return { docKey, docVersion, op: "delete", ...access, trace: event.trace };
    }
    const payload = canonicalJson(after);
    const access = model.access(after, event);
    documents.set(docKey, { version: docVersion, document: after, access });
    return { docKey, docVersion, op: "upsert", payload, ...access, trace: event.trace };
  } catch (cause) {
    throw new BrokenProjection(model, event, cause);
  }
}
