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
  readonly values: readonly unknown[];
  /** Whether the open batch must be completed first, because this artifact would make it too large. */
  readonly closes: readonly unknown[] | undefined;
}

interface Place {
  readonly kind: "batch" | "join";
  readonly key: string;
  readonly slot: string;
  /** The type that it contributes to a join. */
  readonly types: readonly string[];
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
  const { kind, key, slot, types, needed, ms } = place;
  const json = JSON.stringify(artifact);
  const bytes = Buffer.byteLength(json);
  const hash = sha256(key);
  const { org_id: org, id, version } = artifact;
  const limit = kind === "batch" ? maxBytes : Number.MAX_SAFE_INTEGER;
  const times = [new Date(now), new Date(now + ms)];
  const large = kind === "batch" && bytes > maxBytes * LARGE;
  return {
    bytes,
    lock: BigInt.asIntN(64, BigInt(`0x${sha256(`${agent.name} ${org} ${hash}`).slice(0, 16)}`)),
    closes: large ? [agent.name, org, hash, bytes, maxBytes, times[0]] : undefined,
    values: [
      agent.name,
      id,
      version,
      ...times,
      org,
      key,
      hash,
      kind,
      slot,
      types,
      needed,
      bytes,
      limit,
      json,
      artifact.correlation_id ?? null,
    ],
  };
}

function placeOf(agent: Agent, task: Task, artifact: Artifact): Place | undefined {
  const { join, batch, key } = agent.options;
  if (join) {
    const { by = "correlation_id", types, within } = join;
    const value: unknown = by === "correlation_id" ? artifact.correlation_id : by(artifact);
    if (value === null || value === undefined || !types.includes(artifact.type)) return undefined;
    const { type } = artifact;
    return { kind: "join", key: checked(value), slot: type, types: [type], needed: types.length, ms: within };
  }
  if (!batch) throw new TypeError(`The agent "${agent.name}" has neither a batch nor a join.`);
  return {
    kind: "batch",
    key: key ? task.key : artifact.org_id,
    slot: `${artifact.id}:${artifact.version}`,
    types: [],
    needed: batch.size,
    ms: batch.timeout,
  };
}

function checked(key: unknown): string {
  if (typeof key !== "string") throw new TypeError(`by must return a text or null, not ${typeof key}.`);
  if (key.length > MAX_KEY) throw new TypeError(`by must return at most ${MAX_KEY} characters.`);
  if (key.includes("\0") || !key.isWellFormed()) throw new TypeError("by must return text without NUL.");
  return key;
}

/**
 * Takes the group's lock. Without it, one process could hold the artifact and wait for the group while
 * another holds the group and waits for the artifact.
 */
export function lockStatement(lock: bigint): Statement {
  return { name: "board_gather_lock", text: "SELECT pg_advisory_xact_lock($1::bigint)", values: [lock] };
}

/**
 * Adds an artifact once, and completes its group if it is the last one. The lock on the open group's row decides
 * which one is the last; a process that waited for a group that was completed meanwhile starts a new group.
 */
export function addStatements({ values, closes }: Addition): Statement[] {
  const there = "(cardinality($11::text[]) > 0 AND g.types @> $11::text[])";
  const members = `g.members + CASE WHEN ${there} THEN 0 ELSE 1 END`;
  const complete = `${members} >= $12::integer OR g.bytes + $13::bigint >= $14::bigint`;
  const close: Statement = {
    name: "board_gather_close",
    text: `UPDATE runtime.board_groups SET state = 'ready', due_at = $6
      WHERE agent = $1 AND org_id = $2 AND key_hash = $3 AND state = 'open' AND bytes + $4::bigint > $5::bigint`,
    ...(closes && { values: closes }),
  };
  const add: Statement = {
    name: "board_gather_add",
    text: `WITH fresh AS (
        INSERT INTO runtime.board_gathered (agent, artifact_id, version, seen_at) 
        VALUES ($1::text, $2::text, $3::integer, $4::timestamptz)
        ON CONFLICT DO NOTHING RETURNING 1
      ), grp AS (
        INSERT INTO runtime.board_groups AS g
          (agent, due_at, org_id, key, key_hash, kind, types, members, bytes, state)
        SELECT $1::text, $5::timestamptz, $6::text, $7::text, $8::text, $9::text, $11::text[], 1, $13::bigint,
          CASE WHEN 1 >= $12::integer OR $13::bigint >= $14::bigint THEN 'ready' ELSE 'open' END
        FROM fresh
        ON CONFLICT (agent, org_id, key_hash) WHERE state = 'open' DO UPDATE SET
          types = CASE WHEN ${there} THEN g.types ELSE g.types || $11::text[] END,
          members = ${members},
          bytes = g.bytes + $13::bigint,
          state = CASE WHEN ${complete} THEN 'ready' ELSE 'open' END,
          due_at = CASE WHEN ${complete} THEN $4::timestamptz ELSE g.due_at END
        RETURNING group_id, members, state
      ), member AS (
        INSERT INTO runtime.board_members AS m
          (group_id, slot, place, artifact_id, version, artifact, org_id, correlation_id)
        SELECT group_id, $10::text, members, $2::text, $3::integer, $15::json, $6::text, $16::text FROM grp
        ON CONFLICT (group_id, slot) DO UPDATE SET version = excluded.version, artifact = excluded.artifact,
          correlation_id = excluded.correlation_id
          WHERE m.artifact_id = excluded.artifact_id AND m.version < excluded.version
        RETURNING 1
      )
      SELECT grp.state = 'ready' OR grp.members = 1 AS timely, EXISTS (SELECT FROM member) AS kept FROM grp`,
    values,
  };
  return closes ? [close, add] : [add];
}
