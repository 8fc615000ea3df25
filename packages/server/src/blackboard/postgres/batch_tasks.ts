import type { Statement } from "../../database/database.ts";
import { taskId } from "../publish/matching.ts";
import { gatheredId } from "../waiting/gather_sweep.ts";
import { unless, uuidArray } from "./arrays.ts";
import { versionsOf } from "./arrivals.ts";
import { correlationColumn } from "./correlation_column.ts";
import type { Lanes } from "./lanes.ts";

/** An artifact of a batch, as far as that needs to be known. */
export interface Member {
  readonly id: string;
  readonly version: number;
  readonly bytes: number;
  readonly correlationId: string | null;
  /** When it came, in milliseconds. */
  readonly arrivedAt: number;
}

/** What came for one batch, in order. */
export interface Gathered {
  readonly org: string;
  readonly key: string;
  readonly hash: string;
  readonly members: readonly Member[];
}

/** What becomes of what came. */
export interface Packed {
  /** Each is a task. */
  readonly batches: readonly Gathered[];
  /** Each goes to the agent without a batch. */
  readonly alone: readonly {
    readonly org: string;
    readonly key: string;
    readonly member: Member;
    readonly how: Alone;
  }[];
  /** These wait for more. */
  readonly kept: readonly Gathered[];
}

type Alone = "in order" | "at once";

interface Rules {
  readonly size: number;
  /** A batch has about so many bytes at most, however few its artifacts are. */
  readonly maxBytes: number;
  /** What came at this time or earlier waits no longer. */
  readonly overdue: number;
  aloneHow(org: string, member: Member): Alone | undefined;
}

/** Only artifacts that are larger than this part of what a batch may have are kept out of one that is nearly full. */
const LARGE = 1 / 16;

/** Divides what came into batches. */
export function pack(groups: readonly Gathered[], { size, maxBytes, overdue, aloneHow }: Rules): Packed {
  const batches: Gathered[] = [];
  const alone: Packed["alone"][number][] = [];
  const kept: Gathered[] = [];
  for (const group of groups) {
    let members: Member[] = [];
    let bytes = 0;
    const cut = () => {
      if (members.length > 0) batches.push({ ...group, members });
      members = [];
      bytes = 0;
    };
    for (const member of group.members) {
      const how = aloneHow(group.org, member);
      if (how) {
        alone.push({ org: group.org, key: group.key, member, how });
        continue;
      }
      if (member.bytes > maxBytes * LARGE && bytes + member.bytes > maxBytes) cut();
      members.push(member);
      bytes += member.bytes;
      if (members.length >= size || bytes >= maxBytes) cut();
    }
    if (members.length > 0 && members[0]!.arrivedAt <= overdue) cut();
    if (members.length > 0) kept.push({ ...group, members });
  }
  return { batches, alone, kept };
}

/** Makes the tasks of an agent. */
export function formStatement(
  agent: string,
  { batches, alone }: Packed,
  lanes: Lanes,
  now: number,
): Statement {
  const created_at = new Date(now).toISOString();
  const members = batches.flatMap((batch) => batch.members);
  const ids = batches.map(({ key, members }) => gatheredId(agent, key, members[0]!));
  return {
    name: "board_form",
    text: `SELECT runtime.board_form($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)`,
    values: [
      agent,
      unless(
        null,
        batches.map(({ key }) => lanes.ofKey(agent, key)),
      ),
      batches.map(({ key }) => key),
      ids,
      batches.map(({ org, members }) => columnOf(org, members[0]!)),
      now,
      // The artifacts are put before the rest when it is read.
      batches.map(({ key }, i) => JSON.stringify({ id: ids[i], agent, key, attempt: 1, created_at })),
      batches.map(({ members }) => members.length),
      uuidArray(members.map(({ id }) => id)),
      versionsOf(members.map(({ version }) => version)),
      alone.map(({ key }) => key),
      alone.map(({ member }) => taskId(member)),
      alone.map(({ member }) => member.id),
      alone.map(({ member }) => member.version),
      alone.map(({ org, member }) => columnOf(org, member)),
      alone.map(({ member }) => member.arrivedAt),
      unless(
        null,
        alone.map(({ key, how }) => (how === "in order" ? lanes.ofKey(agent, key) : null)),
      ),
    ],
  };
}

function columnOf(org: string, { correlationId }: Member): string | null {
  return correlationColumn({ org_id: org, correlation_id: correlationId ?? "" });
}
