import type { Statement } from "../../database/database.ts";
import { sha256 } from "../../kit/hash.ts";
import type { Agent } from "../model/agent.ts";
import type { Artifact } from "../model/artifact.ts";
import type { Task } from "../model/task.ts";

/** An artifact to add to its group. */
export interface Addition {
  readonly bytes: number;
  /** The advisory lock of its group. */
  readonly lock: bigint;
  /** The parameters of `board_gather`. */
  readonly row: object;
}

/** The group that an artifact belongs to, and its place in it. */
export interface Place {
  readonly kind: "batch" | "join";
  readonly key: string;
  readonly slot: string;
  /** The type that it contributes, if it is a join. */
  readonly type?: string;
  readonly needed: number;
  readonly ms: number;
}

const MAX_KEY = 1_024;
/** Artifacts above this share of a batch's size are checked before they are added. */
const LARGE = 1 / 16;

/** The group of the task's artifact; undefined if the join leaves it out. Throws what the agent's `by` throws. */
export function groupAddition(agent: Agent, task: Task, now: number, maxBytes: number): Addition | undefined {
  const artifact = task.artifacts[0];
  const place = placeOf(agent, task, artifact);
  if (!place) return undefined;
  const { kind, key, slot, type, needed, ms } = place;
  const { org_id: org, id, version, correlation_id: correlation } = artifact;
  // As text within JSON: PostgreSQL would refuse a nested one with characters that it cannot hold, such as NUL.
  const json = JSON.stringify(artifact);
  const bytes = Buffer.byteLength(json);
  const hash = sha256(key);
  const isBatch = kind === "batch";
  return {
    bytes,
    lock: BigInt.asIntN(64, BigInt(`0x${sha256(`${agent.name} ${org} ${hash}`).slice(0, 16)}`)),
    row: {
      agent: agent.name,
      id,
      version,
      now: new Date(now),
      until: new Date(now + ms),
      org,
      key,
      hash,
      kind,
      slot,
      type,
      needed,
      bytes,
      max: isBatch ? maxBytes : Number.MAX_SAFE_INTEGER,
      large: isBatch && bytes > maxBytes * LARGE,
      artifact: json,
      correlation,
    },
  };
}

/** The place of an artifact; undefined if the join leaves it out. Throws what the agent's `by` throws. */
export function placeOf(agent: Agent, task: Task, artifact: Artifact): Place | undefined {
  const { join, batch, key } = agent.options;
  if (join) {
    const { by = "correlation_id", types, within } = join;
    const value: unknown = by === "correlation_id" ? artifact.correlation_id : by(artifact);
    if (value === null || value === undefined || !types.includes(artifact.type)) return undefined;
    const { type } = artifact;
    return { kind: "join", key: checked(value), slot: type, type, needed: types.length, ms: within };
  }
  if (!batch) throw new TypeError(`The agent "${agent.name}" has neither a batch nor a join.`);
  return {
    kind: "batch",
    key: key ? task.key : artifact.org_id,
    slot: `${artifact.id}:${artifact.version}`,
    needed: batch.size,
    ms: batch.timeout,
  };
}

function checked(key: unknown): string {
  if (typeof key !== "string") throw new TypeError(`by must return a string or null, not ${typeof key}.`);
  if (key.length > MAX_KEY) throw new TypeError(`by must return at most ${MAX_KEY} characters.`);
  if (key.includes("\0") || !key.isWellFormed()) throw new TypeError("by must return a string without NUL.");
  return key;
}

/** Adds artifacts to their groups. Answers the `n` of each that is new, whether its group is due, and whether it was kept. */
export function gatherStatement(additions: readonly Addition[]): Statement {
  // JSON has no bigint. PostgreSQL reads the text as one.
  const rows = additions.map(({ lock, row }, n) => ({ n, lock: String(lock), ...row }));
  // Sorted, so that concurrent processes cannot deadlock. Of one group in the order of arrival.
  rows.sort((a, b) => (a.lock < b.lock ? -1 : a.lock > b.lock ? 1 : a.n - b.n));
  return {
    name: "board_gather",
    text: "SELECT * FROM runtime.board_gather($1)",
    values: [JSON.stringify(rows)],
  };
}
