import type { Row } from "../../database/database.ts";
import type { Routed } from "../board.ts";
import type { Bundled } from "./bundles.ts";
import { BundledClaim, type Claimed, type Taking } from "./claimed.ts";
import { type Lanes, lanesTogether } from "./lanes.ts";
import type { Settling } from "./settling.ts";

/** Who may take tasks in the moment in which they are made. */
export interface Taker {
  /** Whether it may take more work now, without waiting for that. */
  passes(): Promise<boolean>;
  /** Keeps room for one task, if there is room and nothing older waits. */
  reserve(): boolean;
  /** Gives room back. */
  unreserve(count: number): void;
  /** Here is a task that was reserved for. */
  accept(claim: Claimed): void;
}

/** What this process takes of a commit, before and after it. */
export interface Offer {
  readonly statement: { readonly taking?: Taking };
  /** Hands over what the rows of the put say was claimed, and answers how many. */
  taken(packed: Bundled, rows: readonly Row[]): number;
  /** Gives back the room that was not used. */
  end(): void;
}

/** Lets tasks that this process makes be claimed by itself as they are inserted, which saves an update of each. */
export interface Handover {
  offer(items: readonly Routed[]): Promise<Offer>;
  /** The same for those who come forward when these are settled. */
  offerNext(settling: readonly Settling[]): Promise<NextOffer>;
}

/** Who comes forward to this process when others are settled. */
export interface NextOffer {
  readonly taking: Taking;
  accept(claim: Claimed): void;
  end(): void;
}

const NOTHING: Offer = { statement: {}, taken: () => 0, end() {} };

/** The hand-over to the takers of this process. */
export function openHandover(
  takers: { of(agent: string): Iterable<Taker> },
  how: { readonly holder: string; readonly leaseMs: number; readonly lanes: Lanes },
): Handover {
  return {
    async offer(items) {
      const tasks = items.flatMap(({ routing }) => routing.tasks);
      const open = await passing(takers, new Set(tasks.map(({ agent }) => agent)));
      if (open.size === 0) return NOTHING;
      const reserved = new Map<Taker, number>();
      const by = tasks.map(({ agent }) => {
        const taker = open.get(agent)?.find((each) => each.reserve());
        if (taker) reserved.set(taker, (reserved.get(taker) ?? 0) + 1);
        return taker;
      });
      if (reserved.size === 0) return NOTHING;
      const wants = by.map((taker) => taker !== undefined);
      const lane = lanesTogether(items, how.lanes);
      return {
        statement: { taking: { holder: how.holder, leaseMs: how.leaseMs, wants } },
        taken({ places, bundles }, rows) {
          let count = 0;
          let base: bigint | undefined;
          const hand = (place: number, claim: Claimed) => {
            const taker = by[place]!;
            reserved.set(taker, reserved.get(taker)! - 1);
            taker.unreserve(1);
            taker.accept(claim);
            count++;
          };
          for (const { n, seq } of rows) {
            if (n === 0) {
              base = seq as bigint;
              continue;
            }
            const place = places[(n as number) - 1]!;
            const task = tasks[place]!;
            hand(place, { seq: seq as bigint, lane: lane(task), task: { ...task, attempt: 1 } });
          }
          for (const { wanted, members } of base === undefined ? [] : bundles) {
            const first = members[0]!.number;
            for (const { place, number, task } of wanted ? members : [])
              hand(place, new BundledClaim({ ...task, attempt: 1 }, base! + BigInt(first), number - first));
          }
          return count;
        },
        end() {
          for (const [taker, count] of reserved) taker.unreserve(count);
        },
      };
    },

    async offerNext(settling) {
      const lanes = settling.filter(({ claim, leaves }) => leaves && claim.lane !== null);
      const open = await passing(takers, new Set(lanes.map(({ claim }) => claim.task.agent)));
      const reserved = new Map<string, Taker>();
      const wants = settling.map(({ claim, leaves }) => {
        if (!leaves || claim.lane === null) return false;
        const taker = open.get(claim.task.agent)?.find((each) => each.reserve());
        if (taker) reserved.set(laneKey(claim), taker);
        return taker !== undefined;
      });
      return {
        taking: { holder: how.holder, leaseMs: how.leaseMs, wants },
        accept(claim) {
          const key = laneKey(claim);
          const taker = reserved.get(key)!;
          reserved.delete(key);
          taker.unreserve(1);
          taker.accept(claim);
        },
        end() {
          for (const taker of reserved.values()) taker.unreserve(1);
          reserved.clear();
        },
      };
    },
  };
}

const laneKey = ({ task, lane }: Claimed) => `${task.agent} ${lane}`;

async function passing(
  takers: { of(agent: string): Iterable<Taker> },
  agents: ReadonlySet<string>,
): Promise<Map<string, Taker[]>> {
  const open = new Map<string, Taker[]>();
  await Promise.all(
    [...agents].map(async (agent) => {
      const all = [...takers.of(agent)];
      const pass = await Promise.all(all.map((taker) => taker.passes()));
      const those = all.filter((_, i) => pass[i]);
      if (those.length > 0) open.set(agent, those);
    }),
  );
  return open;
}
