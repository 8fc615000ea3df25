import type { Database, Statement } from "../../database/database.ts";
import type { Board, DeadLetterPage } from "../board.ts";
import type { Artifact } from "../model/artifact.ts";
import type { CorrelationCounts } from "../model/counts.ts";
import type { DeadLetter } from "../model/task.ts";
import { BY_INDEX } from "./statements.ts";

interface LetterRow {
  readonly seq: bigint;
  readonly replay_id: string | null;
  readonly body: string;
}

type Reads = Omit<
  Board,
  "publish" | "enqueue" | "consume" | "stop" | "counts" | "countsOf" | "lag" | "waiting"
>;

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;
const NUMBER = /^\d{1,18}$/;

/** The newest versions: org, ids. */
const NEWEST = `
SELECT a.body FROM unnest($2::uuid[]) AS u(id) CROSS JOIN LATERAL (
  SELECT a.body FROM runtime.board_artifacts a WHERE a.org_id = $1 AND a.id = u.id ORDER BY a.version DESC LIMIT 1
) a`;

/** The newest of an org within the window, of a type if it is given: org, type, limit, window. */
const RECENT = `
SELECT a.body FROM (
  SELECT a.seq, a.type, a.body FROM runtime.board_artifacts a WHERE a.org_id = $1 ORDER BY a.seq DESC LIMIT $4
) a WHERE $2::text IS NULL OR a.type = $2 ORDER BY a.seq DESC LIMIT $3`;

/** The artifacts of a correlation are few, so the window does not matter: org, type, limit, correlation. */
const OF_CORRELATION = `
SELECT a.body FROM runtime.board_artifacts a
WHERE a.org_id = $1 AND a.correlation_id = $4 AND ($2::text IS NULL OR a.type = $2) ORDER BY a.seq DESC LIMIT $3`;

/**
 * How far correlations have come: orgs, names. A task is done if it was made, is not open, and did not become a dead
 * letter. One that came back from a pause (`+`) is no other task.
 */
const CORRELATIONS = `
SELECT u.org, u.id, a.artifacts, a.open, a.retrying, a.tasks + e.tasks - a.open - d.letters AS done, d.dead
FROM unnest($1::text[], $2::text[]) AS u(org, id)
CROSS JOIN LATERAL (
  SELECT count(DISTINCT a.id) AS artifacts, coalesce(sum(cardinality(a.routes)), 0)::bigint AS tasks,
    coalesce(sum(t.open), 0)::bigint AS open, coalesce(sum(t.retrying), 0)::bigint AS retrying
  FROM runtime.board_artifacts a
  CROSS JOIN LATERAL (
    SELECT count(*) AS open, count(*) FILTER (WHERE t.claimed_by IS NULL AND t.due_at > now()) AS retrying
    FROM runtime.board_tasks t
    WHERE t.org_id = a.org_id AND t.artifact_id = a.id AND t.artifact_version = a.version OFFSET 0
  ) t WHERE a.org_id = u.org AND a.correlation_id = u.id
) a
CROSS JOIN LATERAL (
  SELECT count(*) AS tasks FROM runtime.board_enqueued e
  WHERE e.org_id = u.org AND e.correlation_id = u.id AND strpos(e.replay_id, '+') = 0 OFFSET 0
) e
CROSS JOIN LATERAL (
  SELECT count(*) AS letters, count(*) FILTER (WHERE d.replay_id IS NULL) AS dead
  FROM runtime.board_dead_letters d WHERE d.org_id = u.org AND d.correlation_id = u.id OFFSET 0
) d
WHERE a.artifacts > 0`;

const LETTER = "SELECT d.seq, d.replay_id, d.body FROM runtime.board_dead_letters d";
const IN_ORG = "d.agent = $1 AND d.org_id = o.org";
/** The newest dead letters of each org: agent, orgs, before which, limit, and of which correlation. */
const pageOf = (where: string) => `
SELECT d.seq, d.replay_id, d.body FROM unnest($2::text[]) AS o(org) CROSS JOIN LATERAL (
  ${LETTER} WHERE ${IN_ORG} AND d.seq < $3 ${where} ORDER BY d.seq DESC LIMIT $4
) d ORDER BY d.seq DESC LIMIT $4`;
const LETTERS = pageOf("");
const LETTERS_OF_CORRELATION = pageOf("AND d.correlation_id = $5");
/** Agent, orgs, ids. */
const LETTERS_BY_ID = `
SELECT d.seq, d.replay_id, d.body FROM unnest($3::uuid[]) WITH ORDINALITY AS u(id, n) CROSS JOIN unnest($2::text[]) AS o(org)
CROSS JOIN LATERAL (${LETTER} WHERE ${IN_ORG} AND d.id = u.id OFFSET 0) d ORDER BY u.n`;

/** The lookups of the board. A list searches at most `window` recent artifacts of an org. */
export function openReads(database: Database, { window }: { readonly window: number }): Reads {
  async function read<T>(statement: Statement): Promise<T[]> {
    const [, rows] = await database.transaction([BY_INDEX, statement]);
    return rows as T[];
  }

  async function newest(org: string, ids: readonly string[]): Promise<Artifact[]> {
    const values = [org, ids.filter((id) => UUID.test(id))];
    const rows = await read<{ body: string }>({ name: "board_newest", text: NEWEST, values });
    return rows.map(({ body }) => JSON.parse(body) as Artifact);
  }

  return {
    async get(org, id) {
      return (await newest(org, [id]))[0];
    },

    known: newest,

    async recent({ type, correlationId, org, limit }) {
      const most = Math.min(limit, window);
      const rows = await read<{ body: string }>(
        correlationId === undefined
          ? {
              name: "board_recent",
              text: RECENT,
              values: [org, type ?? null, most, type === undefined ? most : window],
            }
          : {
              name: "board_of_correlation",
              text: OF_CORRELATION,
              values: [org, type ?? null, limit, correlationId],
            },
      );
      return rows.map(({ body }) => JSON.parse(body) as Artifact);
    },

    async correlations(names) {
      const rows = await read<
        Record<Exclude<keyof CorrelationCounts, "correlationId">, unknown> & { id: string }
      >({
        name: "board_correlations",
        text: CORRELATIONS,
        values: [names.map(({ org }) => org), names.map(({ name }) => name)],
      });
      return rows.map(({ id, org, artifacts, open, retrying, done, dead }) => ({
        correlationId: id,
        org: String(org),
        artifacts: Number(artifacts),
        open: Number(open),
        retrying: Number(retrying),
        done: Number(done),
        dead: Number(dead),
      }));
    },

    async deadLetters(agent, { orgs, after, limit, correlationId }): Promise<DeadLetterPage> {
      const before = after !== undefined && NUMBER.test(after) ? BigInt(after) : 2n ** 62n;
      const values = [agent, orgs, before, limit + 1];
      const rows = await read<LetterRow>(
        correlationId === undefined
          ? { name: "board_letters", text: LETTERS, values }
          : { name: "board_letters_of", text: LETTERS_OF_CORRELATION, values: [...values, correlationId] },
      );
      const page = rows.slice(0, limit);
      const deadLetters = page.map(letterOf);
      return rows.length > limit ? { deadLetters, next: String(page.at(-1)!.seq) } : { deadLetters };
    },

    async deadLettersById(agent, orgs, ids) {
      const values = [agent, orgs, ids.filter((id) => UUID.test(id))];
      const rows = await read<LetterRow>({ name: "board_letters_named", text: LETTERS_BY_ID, values });
      return rows.map(letterOf);
    },
  };
}

function letterOf({ body, replay_id }: LetterRow): DeadLetter {
  const letter = JSON.parse(body) as DeadLetter;
  return replay_id === null ? letter : { ...letter, replay_id };
}
