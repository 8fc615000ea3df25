import type { EncodedUpdate, Encoding } from "./update_codec.ts";

/** The viewer of a subscription. */
export interface Viewer {
  readonly org: string;
  readonly subject: string;
  readonly encoding: Encoding;
}

/** Rows, and the subscriptions that see exactly these. */
export interface Share<S> {
  readonly updates: readonly EncodedUpdate[];
  readonly members: Iterable<S>;
}

/** Whether a viewer may see a journal row. */
export function sees(viewer: Pick<Viewer, "org" | "subject">, { row }: EncodedUpdate): boolean {
  if (row.org !== viewer.org || row.hiddenFrom?.includes(viewer.subject)) return false;
  return row.audience === null || row.audience.includes(viewer.subject);
}

interface Org<S> {
  /** Flat, because most rows are for all of them: a broadcast should touch little more than the sockets. */
  readonly everyone: Set<S>;
  readonly bySubject: Map<string, Set<S>>;
}

/** Live subscriptions of one topic, arranged so that a batch is encoded once per set of rows that somebody sees. */
export class Viewers<S extends Viewer> {
  readonly #orgs = new Map<string, Org<S>>();
  #size = 0;

  get size(): number {
    return this.#size;
  }

  add(member: S): void {
    const org = this.#orgs.get(member.org) ?? { everyone: new Set(), bySubject: new Map() };
    if (org.everyone.has(member)) return;
    this.#orgs.set(member.org, org);
    org.everyone.add(member);
    const own = org.bySubject.get(member.subject) ?? new Set();
    org.bySubject.set(member.subject, own.add(member));
    this.#size++;
  }

  delete(member: S): void {
    const org = this.#orgs.get(member.org);
    if (!org?.everyone.delete(member)) return;
    const own = org.bySubject.get(member.subject)!;
    own.delete(member);
    if (own.size === 0) org.bySubject.delete(member.subject);
    if (org.everyone.size === 0) this.#orgs.delete(member.org);
    this.#size--;
  }

  *[Symbol.iterator](): Generator<S> {
    for (const { everyone } of this.#orgs.values()) yield* everyone;
  }

  /** Who sees which of these rows; those who see none are left out. */
  *split(updates: readonly EncodedUpdate[]): Generator<Share<S>> {
    for (const [name, own] of Map.groupBy(updates, (update) => update.row.org)) {
      const org = this.#orgs.get(name);
      if (!org) continue;
      const named = new Set<string>();
      for (const { row } of own) {
        for (const subject of row.audience ?? []) named.add(subject);
        for (const subject of row.hiddenFrom ?? []) named.add(subject);
      }
      // Only those who are named in a row see something of their own: the rest share one encoding.
      for (const subject of named) {
        const members = org.bySubject.get(subject);
        const visible = members ? own.filter((update) => sees({ org: name, subject }, update)) : [];
        if (members && visible.length > 0) yield { updates: visible, members };
      }
      const shared = own.filter(({ row }) => row.audience === null);
      if (shared.length > 0) yield { updates: shared, members: without(org.everyone, named) };
    }
  }
}

function without<S extends Viewer>(members: Set<S>, named: ReadonlySet<string>): Iterable<S> {
  if (named.size === 0) return members;
  return members.values().filter(({ subject }) => !named.has(subject));
}
