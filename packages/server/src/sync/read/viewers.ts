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
export function sees(
  viewer: Pick<Viewer, "org" | "subject">,
  { row, audience }: Pick<EncodedUpdate, "row" | "audience">,
): boolean {
  if (row.org !== viewer.org || row.hiddenFrom?.includes(viewer.subject)) return false;
  return audience === null || audience.has(viewer.subject);
}

/** Subjects who see the same rows. `row` is the last one that names them, `before` the group that they were in until then. */
interface Group {
  readonly row: number;
  readonly before: Group | undefined;
  readonly subjects: Set<string>;
}

interface Org<S> {
  /** Flat, because most rows are for all of them: a broadcast should touch little more than the sockets. */
  readonly everyone: Set<S>;
  readonly bySubject: Map<string, Set<S>>;
}

/** Live subscriptions of one topic, arranged so that a batch is encoded once per distinct set of visible rows. */
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

  /** The viewers of these rows; those who see none are left out. Subjects with the same visible rows share them. */
  *split(updates: readonly EncodedUpdate[]): Generator<Share<S>> {
    for (const [name, own] of Map.groupBy(updates, (update) => update.row.org)) {
      const org = this.#orgs.get(name);
      if (!org) continue;
      const groups = groupsOf(own, org.bySubject);
      for (const group of new Set(groups.values())) {
        const named = new Set<number>();
        for (let each: Group | undefined = group; each; each = each.before) named.add(each.row);
        // To be named in a row is to see it, or not to see what all others do.
        const visible = own.filter(({ row }, i) => named.has(i) !== (row.audience === null));
        if (visible.length > 0) yield { updates: visible, members: membersOf(group, org.bySubject) };
      }
      const shared = own.filter(({ row }) => row.audience === null);
      if (shared.length > 0) yield { updates: shared, members: without(org.everyone, groups) };
    }
  }
}

/**
 * The groups of the subjects that a row names, in one pass over each audience: the subjects of a group whom the next row
 * names move on together into a group of their own.
 */
function groupsOf(
  updates: readonly EncodedUpdate[],
  online: ReadonlyMap<string, unknown>,
): ReadonlyMap<string, Group> {
  const groups = new Map<string, Group>();
  updates.forEach(({ row: { audience, hiddenFrom } }, i) => {
    const next = new Map<Group | undefined, Group>();
    const hidden = audience && hiddenFrom ? new Set(hiddenFrom) : undefined;
    for (const subject of audience ?? hiddenFrom ?? []) {
      const before = groups.get(subject);
      // A subject that is named twice moves once.
      if (before?.row === i || !online.has(subject) || hidden?.has(subject)) continue;
      let group = next.get(before);
      if (!group) {
        group = { row: i, before, subjects: new Set() };
        next.set(before, group);
      }
      before?.subjects.delete(subject);
      group.subjects.add(subject);
      groups.set(subject, group);
    }
  });
  return groups;
}

function* membersOf<S>({ subjects }: Group, bySubject: ReadonlyMap<string, Iterable<S>>): Generator<S> {
  for (const subject of subjects) yield* bySubject.get(subject) ?? [];
}

function without<S extends Viewer>(members: Set<S>, named: ReadonlyMap<string, unknown>): Iterable<S> {
  if (named.size === 0) return members;
  return members.values().filter(({ subject }) => !named.has(subject));
}
