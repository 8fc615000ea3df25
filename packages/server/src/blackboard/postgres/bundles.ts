import type { Statement } from "../../database/database.ts";
import type { Routed } from "../board.ts";
import type { Artifact } from "../model/artifact.ts";
import type { Task } from "../model/task.ts";
import { arrayText, quotedArrayText, textArray, uuidArray } from "./arrays.ts";
import type { Claimed } from "./claimed.ts";

/** Fewer have rows of their own: that is as cheap, and any process can claim one of them. */
export const FEWEST = 16;
/** More would not fit into a page with what is around them, nor into what a process has room for. */
export const MOST_TOGETHER = 100;

/** Characters of an artifact's JSON. Who claims a bundle is sent all of it, and what is larger is not worth sharing. */
const LARGEST = 16_384;

/** A task in a bundle, by its place among all tasks of the commit. */
interface Member {
  readonly place: number;
  /** Its number in the commit. */
  readonly number: number;
  readonly task: Task;
}

/** Tasks of an agent that share a row of `runtime.board_bundles`. */
export interface Bundle {
  readonly agent: string;
  /** Whether this process takes it at once. */
  readonly wanted: boolean;
  /** Whether their keys are hashes, and so all as long. */
  readonly ownKeys: boolean;
  readonly members: readonly Member[];
}

/** The tasks of a commit: those with rows of their own, and bundles. */
export interface Bundled {
  /** None if all are in bundles. */
  readonly rows: readonly Routed[];
  /** The places of the tasks in rows, among all. */
  readonly places: readonly number[];
  readonly lanes: readonly (string | null)[];
  readonly bundles: readonly Bundle[];
}

/** How tasks are put into bundles. */
interface Bundling {
  laneOf(task: Task): string | null;
  hasOwnKey(task: Task): boolean;
  /** Which of them this process takes at once, by place. */
  readonly wants: readonly boolean[] | undefined;
  /** So many make a bundle. */
  readonly fewest: number;
}

/** Puts tasks that nothing orders into bundles, where there are enough of them; `numbers` are theirs in the commit. */
export function intoBundles(
  items: readonly Routed[],
  bodies: readonly string[],
  numbers: readonly number[],
  { laneOf, hasOwnKey, wants, fewest }: Bundling,
): Bundled {
  const tasks: Task[] = [];
  const lanes: (string | null)[] = [];
  const groups: (Bundle & { readonly members: Member[] })[] = [];
  let group: (typeof groups)[number] | undefined;
  for (let i = 0; i < items.length; i++) {
    const isSmall = bodies[i]!.length <= LARGEST;
    for (const task of items[i]!.routing.tasks) {
      const place = tasks.push(task) - 1;
      const lane = laneOf(task);
      lanes.push(lane);
      if (lane !== null || !isSmall || !mayShare(task)) continue;
      const { agent } = task;
      const wanted = wants?.[place] ?? false;
      const ownKeys = hasOwnKey(task);
      const isIts = (other: Bundle) =>
        other.agent === agent && other.wanted === wanted && other.ownKeys === ownKeys;
      // Most times it is that of the one before.
      if (!group || !isIts(group)) group = groups.find(isIts);
      if (!group) {
        group = { agent, wanted, ownKeys, members: [] };
        groups.push(group);
      }
      group.members.push({ place, number: numbers[place]!, task });
    }
  }
  const bundles = groups.flatMap((each) => (each.members.length < fewest ? [] : inParts(each)));
  if (bundles.length === 0) return { rows: items, places: tasks.map((_, place) => place), lanes, bundles };
  const inBundles = bundles.reduce((sum, { members }) => sum + members.length, 0);
  if (inBundles === tasks.length) return { rows: [], places: [], lanes: [], bundles };
  const bundled = new Set(bundles.flatMap(({ members }) => members.map(({ task }) => task)));
  const places = tasks.flatMap((task, place) => (bundled.has(task) ? [] : [place]));
  return {
    rows: items.map((item) => without(item, bundled)),
    places,
    lanes: places.map((place) => lanes[place]!),
    bundles,
  };
}

function mayShare({ id, artifacts }: Task): boolean {
  const [artifact] = artifacts;
  return artifacts.length === 1 && artifact.version === 1 && id === artifact.id && !artifact.correlation_id;
}

function inParts({ members, ...rest }: Bundle): Bundle[] {
  const size = Math.ceil(members.length / Math.ceil(members.length / MOST_TOGETHER));
  const bundles: Bundle[] = [];
  for (let at = 0; at < members.length; at += size)
    bundles.push({ ...rest, members: members.slice(at, at + size) });
  return bundles;
}

function without({ artifact, routing }: Routed, bundled: ReadonlySet<Task>): Routed {
  return { artifact, routing: { ...routing, tasks: routing.tasks.filter((task) => !bundled.has(task)) } };
}

/** Bundles as `runtime.board_put` is told of them, with the artifacts in the order in which it has their ids. */
export function bundleColumns(
  bundles: readonly Bundle[],
  artifacts: readonly Artifact[],
  now: number,
): unknown[] {
  if (bundles.length === 0) return [null, null, null, null, null, null, null, null, null, null];
  const firsts = bundles.map(({ members }) => members[0]!.number);
  const keysOf = ({ members }: Bundle) => members.map(({ task }) => task.key);
  const ids = bundles.flatMap(({ members }) => members.map(({ task }) => task.id));
  const isAll = ids.length === artifacts.length && ids.every((id, i) => id === artifacts[i]!.id);
  let from = 1;
  const froms = bundles.map(({ members }) => {
    from += members.length;
    return from - members.length;
  });
  return [
    textArray(bundles.map(({ agent }) => agent)),
    firsts,
    froms,
    bundles.map(({ members }, i) => froms[i]! + members.length - 1),
    textArray(bundles.map((bundle) => (bundle.ownKeys ? keysOf(bundle).join("") : null))),
    textArray(bundles.map((bundle) => (bundle.ownKeys ? null : quotedArrayText(keysOf(bundle))))),
    bundles.map(({ wanted }) => wanted),
    bundles.flatMap(({ members }, i) => members.map(({ number }) => number - firsts[i]!)),
    isAll ? null : uuidArray(ids),
    // What one commit makes, it makes in one moment.
    now,
  ];
}

/** A claim that is to leave its bundle, if it is in one. */
type Leaving = Pick<Claimed, "seq"> & {
  readonly bundle?: bigint | undefined;
  readonly task: Pick<Task, "agent">;
};

/** Gives claims rows of their own, if they are in bundles: for all that can become of them but success. */
export function unbundleStatements(holder: string, claims: readonly Leaving[]): Statement[] {
  const bundled = claims.filter(({ bundle }) => bundle !== undefined);
  if (bundled.length === 0) return [];
  return [
    {
      name: "board_unbundle",
      text: "SELECT runtime.board_unbundle_claims($1, $2, $3, $4)",
      values: [
        holder,
        bundled.map(({ task }) => task.agent),
        bundled.map(({ bundle }) => bundle),
        bundled.map(({ seq }) => seq),
      ],
    },
  ];
}

/** Locks bundles of these claims, in the order in which all do: for who touches them with more than one statement. */
export function lockBundlesStatements(holder: string, claims: readonly Claimed[]): Statement[] {
  const bundles = bundlesOf(claims);
  if (bundles.size < 2) return [];
  return [
    {
      name: "board_lock_bundles",
      text: `SELECT FROM runtime.board_bundles b
        JOIN unnest($2::text[], $3::bigint[]) AS u(agent, seq) ON b.agent = u.agent COLLATE "C" AND b.seq = u.seq
        WHERE b.claimed_by = $1 ORDER BY b.agent, b.seq FOR UPDATE OF b`,
      values: [holder, [...bundles.values()], [...bundles.keys()]],
    },
  ];
}

/** The bundles that claims came in, each with its agent. */
function bundlesOf(claims: readonly Claimed[]): Map<bigint, string> {
  const bundles = new Map<bigint, string>();
  for (const { bundle, task } of claims) if (bundle !== undefined) bundles.set(bundle, task.agent);
  return bundles;
}

/** Settles claims that are done and came in bundles, sorted by agent and number. Its rows are those that left their bundle. */
export function settleBundlesStatement(
  holder: string,
  claims: readonly Claimed[],
  every: boolean,
): Statement {
  const groups: { readonly agent: string; readonly bundle: bigint; readonly ats: number[] }[] = [];
  let last: (typeof groups)[number] | undefined;
  for (const { task, bundle, at } of claims) {
    if (last?.bundle === bundle && last?.agent === task.agent) last.ats.push(at!);
    else {
      last = { agent: task.agent, bundle: bundle!, ats: [at!] };
      groups.push(last);
    }
  }
  return {
    name: "board_settle_bundles",
    text: "SELECT seq FROM runtime.board_settle_bundles($1, $2, $3, $4, $5)",
    values: [
      holder,
      groups.map(({ agent }) => agent),
      groups.map(({ bundle }) => bundle),
      textArray(groups.map(({ ats }) => arrayText(ats))),
      every,
    ],
  };
}

/**
 * Renews the leases of bundles: holder, agents, bundles, lease. Answers the tasks that are still in them. A row that is
 * locked is being settled, or will be renewed the next time.
 */
const RENEW = `
WITH mine AS MATERIALIZED (
  SELECT b.agent, b.seq, b.ats FROM unnest($2::text[], $3::bigint[]) AS u(agent, seq)
  CROSS JOIN LATERAL (
    SELECT b.agent, b.seq, b.ats FROM runtime.board_bundles b
    WHERE b.agent = u.agent AND b.seq = u.seq AND b.claimed_by = $1 OFFSET 0
  ) b
), free AS MATERIALIZED (
  SELECT f.agent, f.seq FROM mine m
  CROSS JOIN LATERAL (
    SELECT b.agent, b.seq FROM runtime.board_bundles b WHERE b.agent = m.agent AND b.seq = m.seq AND b.claimed_by = $1
    OFFSET 0 FOR NO KEY UPDATE SKIP LOCKED
  ) f
), renewed AS (
  UPDATE runtime.board_bundles b SET held_until = now() + $4 * interval '1 ms'
  FROM (SELECT f.agent, f.seq FROM free f OFFSET 0) f WHERE b.agent = f.agent AND b.seq = f.seq AND b.claimed_by = $1
)
SELECT m.seq + u.at AS seq, 1 AS attempt FROM mine m CROSS JOIN unnest(m.ats) AS u(at)`;

/** Renews the leases of the bundles that these claims came in. */
export function renewBundlesStatements(
  holder: string,
  claims: readonly Claimed[],
  leaseMs: number,
): Statement[] {
  const bundles = bundlesOf(claims);
  if (bundles.size === 0) return [];
  return [
    {
      name: "board_renew_bundles",
      text: RENEW,
      values: [holder, [...bundles.values()], [...bundles.keys()], leaseMs],
    },
  ];
}
