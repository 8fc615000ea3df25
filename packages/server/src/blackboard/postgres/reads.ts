import type { Database } from "../../database/database.ts";
import type { Clock } from "../../kit/clock.ts";
import type { Artifact } from "../artifact.ts";
import type { Board, CorrelationCounts, DeadLetterPage } from "../board.ts";
import type { DeadLetter } from "../task.ts";
import { correlationArtifacts } from "./correlation_artifacts.ts";
import { type CountsOptions, openCounts } from "./counts.ts";
import { KeptFigures } from "./kept_figures.ts";

interface LetterRow {
  readonly seq: bigint;
  readonly replay_id: string | null;
  readonly body: string;
}

type Reads = Omit<Board, "publish" | "enqueue" | "consume" | "stop">;

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;
const NUMBER = /^\d{1,18}$/;

/** The newest version of an artifact. */
const GET = "SELECT a.body FROM runtime.board_artifacts a WHERE a.id = $1 ORDER BY a.version DESC LIMIT 1";

/** The newest of an org within the window, of a type if it is given: org, type, limit, window. */
const RECENT = `
SELECT r.body FROM (
  SELECT a.type, a.seq, a.body FROM runtime.board_artifacts a WHERE a.org_id = $1 ORDER BY a.seq DESC LIMIT $4
) r WHERE $2::text IS NULL OR r.type = $2 ORDER BY r.seq DESC LIMIT $3`;

/**
 * How far correlations have come. A task is done if it was made, is not open, and did not end as a dead letter. What waits
 * for its batch is open, and one that came back from a pause (`+`) is no other task.
 */
const CORRELATIONS = `
SELECT u.id, a.org, a.artifacts, q.open + r.open + b.open AS open, q.retrying, r.open + b.open AS gathering,
  a.tasks + t.tasks - q.open - r.open - b.open - d.letters AS done, d.dead
FROM unnest($1::text[]) AS u(id)
CROSS JOIN LATERAL (
  SELECT min(a.org_id) AS org, count(DISTINCT a.id) AS artifacts, coalesce(sum(cardinality(a.routes)), 0)::bigint AS tasks
  FROM runtime.board_artifacts a WHERE a.correlation_id = u.id OFFSET 0
) a
CROSS JOIN LATERAL (
  SELECT count(*) AS tasks FROM runtime.board_tasks t WHERE t.correlation_id = u.id AND strpos(t.replay_id, '+') = 0 OFFSET 0
) t
CROSS JOIN LATERAL (
  SELECT count(*) AS open, count(*) FILTER (WHERE q.claimed_by IS NULL AND q.due_at > now()) AS retrying
  FROM runtime.board_queue q WHERE q.correlation_id = u.id OFFSET 0
) q
CROSS JOIN LATERAL (
  SELECT count(*) AS open FROM runtime.board_arrivals r CROSS JOIN unnest(r.correlations) AS c
  WHERE r.correlations @> ARRAY[u.id] AND c = u.id OFFSET 0
) r
CROSS JOIN LATERAL (
  SELECT count(*) AS open FROM runtime.board_batches b CROSS JOIN unnest(b.correlations) AS c
  WHERE b.correlations @> ARRAY[u.id] AND c = u.id OFFSET 0
) b
CROSS JOIN LATERAL (
  SELECT count(*) AS letters, count(*) FILTER (WHERE d.replay_id IS NULL) AS dead
  FROM runtime.board_dead_letters d WHERE d.correlation_id = u.id OFFSET 0
) d
WHERE a.artifacts > 0`;

const LETTER = "SELECT d.seq, d.replay_id, d.body FROM runtime.board_dead_letters d";
/** A page of an agent's dead letters: agent, before which, limit. */
const LETTERS = `${LETTER} WHERE d.agent = $1 AND d.seq < $2 ORDER BY d.seq DESC LIMIT $3`;
/** The same of one correlation. */
const LETTERS_OF = `${LETTER} WHERE d.agent = $1 AND d.seq < $2 AND d.correlation_id = $4
ORDER BY d.seq DESC LIMIT $3`;

/** What can be looked up on the board. */
export function openReads(
  database: Database,
  clock: Clock,
  { agents, window, countUpTo }: CountsOptions & { readonly window: number },
): Reads {
  const related = new KeptFigures<CorrelationCounts>(clock, {
    nameOf: ({ correlationId }) => correlationId,
    rowsOf: ({ artifacts, open, done }) => (open > 0 ? artifacts + open + done : 0),
  });

  async function countCorrelations(ids: readonly string[]): Promise<CorrelationCounts[]> {
    const rows = await database.query<
      Record<Exclude<keyof CorrelationCounts, "correlationId">, unknown> & { id: string }
    >({
      name: "board_correlations",
      text: CORRELATIONS,
      values: [ids],
    });
    return rows.map(({ id, org, artifacts, open, retrying, gathering, done, dead }) => ({
      correlationId: id,
      org: String(org),
      artifacts: Number(artifacts),
      open: Number(open),
      retrying: Number(retrying),
      gathering: Number(gathering),
      done: Number(done),
      dead: Number(dead),
    }));
  }

  return {
    ...openCounts(database, clock, { agents, countUpTo }),

    async get(id) {
      if (!UUID.test(id)) return undefined;
      const [row] = await database.query<{ body: string }>({ name: "board_get", text: GET, values: [id] });
      return row && (JSON.parse(row.body) as Artifact);
    },

    async recent({ type, correlationId, org, limit }) {
      if (correlationId !== undefined)
        return correlationArtifacts(database, {
          correlationId,
          org,
          limit,
          ...(type !== undefined && { type }),
        });
      const values = [org, type ?? null, Math.min(limit, window), window];
      const rows = await database.query<{ body: string }>({ name: "board_recent", text: RECENT, values });
      return rows.map(({ body }) => JSON.parse(body) as Artifact);
    },

    correlations: (ids) => related.get(ids, countCorrelations),

    async deadLetters(agent, { after, limit, correlationId }): Promise<DeadLetterPage> {
      const before = after !== undefined && NUMBER.test(after) ? BigInt(after) : 2n ** 62n;
      const values = [agent, before, limit + 1];
      const rows = await database.query<LetterRow>(
        correlationId === undefined
          ? { name: "board_letters", text: LETTERS, values }
          : { name: "board_letters_of", text: LETTERS_OF, values: [...values, correlationId] },
      );
      const page = rows.slice(0, limit);
      const deadLetters = page.map(letterOf);
      return rows.length > limit ? { deadLetters, next: String(page.at(-1)!.seq) } : { deadLetters };
    },

    async deadLetter(agent, id) {
      if (!UUID.test(id)) return undefined;
      const [row] = await database.query<LetterRow>({
        name: "board_letter",
        text: `${LETTER} WHERE d.agent = $1 AND d.id = $2`,
        values: [agent, id],
      });
      return row && letterOf(row);
    },

    async deadLettersById(agent, ids) {
      const rows = await database.query<LetterRow>({
        name: "board_letters_named",
        text: `SELECT d.seq, d.replay_id, d.body FROM unnest($2::uuid[]) WITH ORDINALITY AS u(id, n)
          CROSS JOIN LATERAL (
            SELECT d.seq, d.replay_id, d.body FROM runtime.board_dead_letters d WHERE d.agent = $1 AND d.id = u.id OFFSET 0
          ) d ORDER BY u.n`,
        values: [agent, ids.filter((id) => UUID.test(id))],
      });
      return rows.map(letterOf);
    },
  };
}

function letterOf({ body, replay_id }: LetterRow): DeadLetter {
  const letter = JSON.parse(body) as DeadLetter;
  return replay_id === null ? letter : { ...letter, replay_id };
}
