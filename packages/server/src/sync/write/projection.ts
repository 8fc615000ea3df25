import { canonicalJson } from "@khala/contracts";
import { streamKey } from "../../events/authority.ts";
import { type AuthorityEvent, ERASED } from "../../events/stream.ts";
import { expiryOf, hasExpired } from "../expiry.ts";
import { documentId, isKeyOf, MAX_KEY_BYTES, type Model, tombstone } from "../model.ts";
import type { CurrentDocument, DocumentName } from "../read/read_models.ts";
import type { DocumentWrite } from "./write_statement.ts";

/** The error of a projection: the event, and the cause. */
export class BrokenProjection extends Error {
  override readonly name = "BrokenProjection";
  readonly event: AuthorityEvent;

  constructor(model: Model, event: AuthorityEvent, cause: unknown) {
    const place = `event ${event.position} (${event.type}, ${event.kind} ${event.streamId}, sequence ${event.seq})`;
    super(`The projection of ${model.topic} failed at ${place}: ${reasonOf(cause)}`, { cause });
    this.event = event;
  }
}

/** A model may throw anything, also what cannot be written as text. */
function reasonOf(cause: unknown): string {
  try {
    return String((cause as Error)?.message ?? cause);
  } catch {
    return "it threw a value without a message";
  }
}

/** The document key of an event, or null when the model ignores it. */
function keyFor(model: Model, event: AuthorityEvent): string | null {
  if (event.type === ERASED || !model.streams.some((stream) => stream.kind === event.kind)) return null;
  const id = model.id(event);
  if (id === null) return null;
  const docKey = `${model.prefix}:${id}`;
  if (isKeyOf(model, docKey)) return docKey;
  throw new TypeError(
    `an id must be Unicode text without NUL, of at most ${MAX_KEY_BYTES} bytes with its prefix`,
  );
}

/** The documents that events change, by `documentId`. Skips an event whose id fails: `applyEvent` reports it. */
export function documentsOf(model: Model, events: readonly AuthorityEvent[]): Map<string, DocumentName> {
  const names = new Map<string, DocumentName>();
  for (const event of events) {
    try {
      const docKey = keyFor(model, event);
      if (docKey === null) continue;
      const name = { org: event.org, docKey };
      names.set(documentId(name), name);
    } catch {
      // The fold sets its stream aside.
    }
  }
  return names;
}

/**
 * Applies one event to `documents` and returns the write it makes, or undefined when nothing changes. A new document starts
 * above `purgedVersion`.
 * Throws BrokenProjection when the model throws or its document cannot be stored.
 */
export function applyEvent(
  model: Model,
  event: AuthorityEvent,
  documents: Map<string, CurrentDocument>,
  purgedVersion = 0n,
): DocumentWrite | undefined {
  try {
    const docKey = keyFor(model, event);
    if (docKey === null) return undefined;
    const { org, trace } = event;
    const id = documentId({ org, docKey });
    const current = documents.get(id);
    const stored = current?.document ?? null;
    // As of the event, so that it makes no difference when retention deletes the document.
    const before = stored && hasExpired(model, stored, event.at) ? null : stored;
    const after = model.project(before, event);
    if (after === before || (before === null && (after === tombstone || after === null))) return undefined;
    // The document may have existed before retention removed it, and clients may still remember its versions.
    const docVersion = (current?.version ?? purgedVersion) + 1n;
    if (after === tombstone || after === null) {
      const { audience } = current!;
      documents.set(id, { version: docVersion, document: null, audience });
      return { docKey, docVersion, op: "delete", org, audience, trace };
    }
    const payload = canonicalJson(after);
    const audience = model.audience(after, event);
    documents.set(id, { version: docVersion, document: after, audience });
    const expiresAt = expiryOf(model, after);
    return {
      docKey,
      docVersion,
      op: "upsert",
      payload,
      org,
      audience,
      trace,
      ...(expiresAt && { expiresAt }),
    };
  } catch (cause) {
    throw new BrokenProjection(model, event, cause);
  }
}

/** The writes of a batch of events, and the events that failed: the first of each stream. */
export interface Folded {
  readonly writes: DocumentWrite[];
  readonly failures: BrokenProjection[];
}

/** Applies events to `documents`. A stream that fails joins `paused`: its later events wait, and other streams continue. */
export function foldEvents(
  model: Model,
  events: readonly AuthorityEvent[],
  documents: Map<string, CurrentDocument>,
  paused: Set<string>,
  purgedVersion = 0n,
): Folded {
  const folded: Folded = { writes: [], failures: [] };
  for (const event of events) {
    if (paused.size > 0 && paused.has(streamKey(event))) continue;
    try {
      const write = applyEvent(model, event, documents, purgedVersion);
      if (write) folded.writes.push(write);
    } catch (error) {
      if (!(error instanceof BrokenProjection)) throw error;
      folded.failures.push(error);
      paused.add(streamKey(event));
    }
  }
  return folded;
}
