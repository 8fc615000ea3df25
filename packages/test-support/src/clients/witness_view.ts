import { hash } from "node:crypto";
import { canonicalJson } from "@khala/contracts";
import type { Cursor, WireUpdate } from "./witness_wire.ts";

/** A document as a witness holds it: the hash is null once it is deleted. */
export interface HeldDocument {
  readonly version: bigint;
  readonly hash: string | null;
}

/** Documents by key, and the position at which they are true. */
export interface Listed {
  readonly documents: ReadonlyMap<string, HeldDocument>;
  readonly cursor: Cursor;
}

/** A witness's view of one topic as it is persisted. */
export interface SavedView {
  readonly documents: readonly (readonly [string, HeldDocument])[];
  readonly cursor: Cursor | undefined;
}

export interface WireBatch {
  readonly updates: readonly WireUpdate[];
  readonly through: Cursor;
  readonly replayComplete: boolean;
}

/** A client's copy of one topic, and every promise broken on the way. */
export class WitnessView {
  readonly topic: string;
  readonly #documents = new Map<string, HeldDocument>();
  readonly #mayBeTold: (update: WireUpdate) => boolean;
  readonly #accuse: (what: string) => void;
  /** Keys of received tombstones. */
  readonly tombstones = new Set<string>();
  #cursor: Cursor | undefined;
  /** The updates of this subscription; undefined without one. */
  #received: { newest: bigint; versions: Map<string, bigint>; complete: boolean } | undefined;

  constructor(
    topic: string,
    mayBeTold: (update: WireUpdate) => boolean,
    accuse: (what: string) => void,
    saved?: SavedView,
  ) {
    this.topic = topic;
    this.#mayBeTold = mayBeTold;
    this.#accuse = (what) => accuse(`${topic}: ${what}`);
    for (const [key, document] of saved?.documents ?? []) this.#documents.set(key, document);
    this.#cursor = saved?.cursor;
  }

  /** The position up to which it is complete; undefined before the first list and after the position became stale. */
  get cursor(): Cursor | undefined {
    return this.#cursor;
  }

  get replaying(): boolean {
    return this.#received !== undefined && !this.#received.complete;
  }

  get live(): boolean {
    return this.#received?.complete ?? false;
  }

  save(): SavedView {
    return { documents: [...this.#documents], cursor: this.#cursor };
  }

  /** A subscription begins at a position; one without an epoch asks for all that is retained. */
  begin(from: Cursor): void {
    this.#received = { newest: from.watermark, versions: new Map(), complete: false };
  }

  /** Ends the subscription: its order says nothing about the next one. */
  end(): void {
    this.#received = undefined;
  }

  /** Marks the position as stale: the copy cannot be continued. */
  forget(): void {
    this.end();
    this.#cursor = undefined;
  }

  /** Replaces the copy with a list. */
  reset({ documents, cursor }: Listed): void {
    this.#documents.clear();
    for (const [key, document] of documents) this.#documents.set(key, document);
    this.#cursor = cursor;
  }

  /** Applies a batch; the position moves afterwards. `fetch` gets documents too large to be sent. */
  async apply(batch: WireBatch, fetch: (docKey: string) => Promise<HeldDocument | undefined>): Promise<void> {
    const received = this.#received;
    if (!received) return this.#accuse("a batch without a subscription");
    for (const update of batch.updates) {
      this.#check(update, received);
      const held = update.fetchRequired ? await fetch(update.docKey) : heldOf(update);
      if (update.op === "delete") this.tombstones.add(update.docKey);
      if (held) this.#hold(update.docKey, held);
    }
    this.#move(batch.through, received);
    if (!batch.replayComplete) return;
    if (received.complete) this.#accuse("a replay that was completed twice");
    received.complete = true;
  }

  /** Takes the position of a heartbeat. */
  progress(through: Cursor): void {
    if (this.#received) this.#move(through, this.#received);
  }

  #hold(key: string, document: HeldDocument): void {
    const before = this.#documents.get(key);
    if (!before || document.version > before.version) this.#documents.set(key, document);
  }

  #check(update: WireUpdate, received: { newest: bigint; versions: Map<string, bigint> }): void {
    const { docKey, docVersion, watermark, op, payload, hash: sent } = update;
    const name = `${docKey} version ${docVersion} at ${watermark}`;
    if (watermark <= received.newest) this.#accuse(`${name} came after ${received.newest}`);
    received.newest = watermark;
    const before = received.versions.get(docKey);
    if (before !== undefined && docVersion <= before) this.#accuse(`${name} came after version ${before}`);
    received.versions.set(docKey, docVersion);
    if (!this.#mayBeTold(update)) this.#accuse(`${name} is not this viewer's to see`);
    if (op === "upsert" && !update.fetchRequired) {
      if (payload === undefined) return this.#accuse(`${name} has no payload`);
      const document = JSON.parse(payload);
      // A document that a test damaged on purpose is sent as it is when the journal only points to it.
      if (document.damaged !== true && hash("sha256", canonicalJson(document), "hex") !== sent)
        this.#accuse(`${name} does not hash to ${sent}`);
    }
  }

  #move(through: Cursor, received: { newest: bigint }): void {
    const place = `${through.epoch}/${through.watermark}`;
    if (through.watermark < received.newest) this.#accuse(`${place} is before ${received.newest}`);
    received.newest = through.watermark;
    this.#cursor = through;
  }

  /** Whether its position equals that of a list, whose documents it must then hold. */
  agreesWith(list: Listed): boolean {
    const { epoch, watermark } = list.cursor;
    if (this.#cursor?.epoch !== epoch || this.#cursor.watermark !== watermark) return false;
    for (const difference of this.#differences(list)) this.#accuse(`at ${epoch}/${watermark}: ${difference}`);
    return true;
  }

  *#differences({ documents }: Listed): Generator<string> {
    for (const [key, { version, hash: held }] of this.#documents) {
      if (held !== null && !documents.has(key)) yield `${key} version ${version} is held and not listed`;
    }
    for (const [key, listed] of documents) {
      const held = this.#documents.get(key);
      if (!held || held.hash === null) yield `${key} version ${listed.version} is listed and not held`;
      else if (held.version !== listed.version || held.hash !== listed.hash)
        yield `${key} is held as version ${held.version} and listed as ${listed.version}`;
    }
  }

  /** The current documents, by key. */
  get documents(): ReadonlyMap<string, HeldDocument> {
    return new Map([...this.#documents].filter(([, document]) => document.hash !== null));
  }
}

function heldOf({ op, docVersion, hash: sent }: WireUpdate): HeldDocument {
  return { version: docVersion, hash: op === "delete" ? null : (sent ?? "") };
}
