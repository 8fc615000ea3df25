import type { EncodedUpdate, Encoding } from "./update_codec.ts";

/** Whose eyes a subscription has. */
export interface ViewerKey {
  readonly org: string;
  readonly subject: string;
  /** The fingerprint of the rights that cursors are bound to. */
  readonly rights: string;
  readonly encoding: Encoding;
}

/** The live subscriptions that get the same bytes. */
export interface Group<S> {
  readonly key: ViewerKey;
  readonly members: Set<S>;
}

/** Rows, and the groups that see exactly these. */
export interface Share<S> {
  readonly updates: readonly EncodedUpdate[];
  readonly groups: readonly Group<S>[];
}

/** Whether a viewer may see a journal row. */
export function sees(viewer: Pick<ViewerKey, "org" | "subject">, { row }: EncodedUpdate): boolean {
  if (row.org !== viewer.org || row.hiddenFrom?.includes(viewer.subject)) return false;
  return row.audience === null || row.audience.includes(viewer.subject);
}

/** Live subscriptions of one topic, grouped so that a batch is encoded once per set of rows that somebody sees. */
export class ViewerGroups<S extends ViewerKey> {
  /** org → subject → groups. */
  readonly #orgs = new Map<string, Map<string, Group<S>[]>>();
  #size = 0;

  get size(): number {
    return this.#size;
  }

  add(member: S): void {
    const subjects = this.#orgs.get(member.org) ?? new Map<string, Group<S>[]>();
    this.#orgs.set(member.org, subjects);
    const groups = subjects.get(member.subject) ?? [];
    subjects.set(member.subject, groups);
    let group = groups.find(({ key }) => key.rights === member.rights && key.encoding === member.encoding);
    if (!group) {
      group = { key: member, members: new Set() };
      groups.push(group);
    }
    if (group.members.has(member)) return;
    group.members.add(member);
    this.#size++;
  }

  delete(member: S): void {
    const subjects = this.#orgs.get(member.org);
    const groups = subjects?.get(member.subject);
    const index = groups?.findIndex(({ members }) => members.has(member)) ?? -1;
    if (!subjects || !groups || index < 0) return;
    const group = groups[index]!;
    group.members.delete(member);
    this.#size--;
    if (group.members.size === 0) groups.splice(index, 1);
    if (groups.length === 0) subjects.delete(member.subject);
    if (subjects.size === 0) this.#orgs.delete(member.org);
  }

  *[Symbol.iterator](): Generator<S> {
    for (const subjects of this.#orgs.values()) {
      for (const groups of subjects.values()) for (const group of groups) yield* group.members;
    }
  }

  /** Which groups see which of these rows; those that see none are left out. */
  *split(updates: readonly EncodedUpdate[]): Generator<Share<S>> {
    for (const [org, own] of Map.groupBy(updates, (update) => update.row.org)) {
      const subjects = this.#orgs.get(org);
      if (!subjects) continue;
      const named = new Set<string>();
      for (const { row } of own) {
        for (const subject of row.audience ?? []) named.add(subject);
        for (const subject of row.hiddenFrom ?? []) named.add(subject);
      }
      // Only those who are named in a row see something of their own: the rest share one encoding.
      for (const subject of named) {
        const groups = subjects.get(subject);
        const visible = groups ? own.filter((update) => sees({ org, subject }, update)) : [];
        if (groups && visible.length > 0) yield { updates: visible, groups };
      }
      const everyone = own.filter(({ row }) => row.audience === null);
      if (everyone.length === 0) continue;
      const others: Group<S>[] = [];
      for (const [subject, groups] of subjects) {
        if (!named.has(subject)) others.push(...groups);
      }
      if (others.length > 0) yield { updates: everyone, groups: others };
    }
  }
}
