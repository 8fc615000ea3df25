import type { Database } from "../../database/database.ts";
import type { Clock } from "../../kit/clock.ts";
import type { Board, CorrelationCounts, CorrelationName, DeadLetterPage } from "../board.ts";
import type { Artifact } from "../model/artifact.ts";
import type { DeadLetter } from "../model/task.ts";
import { correlationArtifacts } from "./correlation_artifacts.ts";
import { correlationColumn } from "./correlation_column.ts";
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
const RECENT = "SELECT body FROM runtime.board_recent($1, $2, $3, $4) AS body";

/** Both ways in which rows name a correlation; see correlation_column.ts. */
const NAMED = "ANY (ARRAY[u.org || E'\\n' || u.id, u.id])";

/**
 * How far correlations have come: orgs, names. A task is done if it was made, is not open, and did not end as a dead
 * letter. What waits for its batch is open, and one that came back from a pause (`+`) is no other task.
 */
const CORRELATIONS = `
SELECT u.org, u.id, a.artifacts, q.open + r.open + b.open AS open, q.retrying, r.open + b.open AS gathering,
  a.tasks + t.tasks - q.open - r.open - b.open - d.letters AS done, d.dead
FROM unnest($1::text[], $2::text[]) AS u(org, id)
CROSS JOIN LATERAL (
  SELECT count(DISTINCT a.id) AS artifacts, coalesce(sum(cardinality(a.routes)), 0)::bigint AS tasks
  -- Apart, or all that the org has might be looked through.
  FROM (SELECT a.id, a.org_id, a.routes FROM runtime.board_artifacts a WHERE a.correlation_id = u.id OFFSET 0) a
  WHERE a.org_id = u.org
) a
CROSS JOIN LATERAL (
  SELECT count(*) AS tasks FROM runtime.board_tasks t WHERE t.correlation_id = ${NAMED} AND strpos(t.replay_id, '+') = 0 OFFSET 0
) t
CROSS JOIN LATERAL (
  SELECT count(*) AS open, count(*) FILTER (WHERE q.claimed_by IS NULL AND q.due_at > now()) AS retrying
  FROM runtime.board_queue q WHERE q.correlation_id = ${NAMED} OFFSET 0
) q
CROSS JOIN LATERAL (
  SELECT count(*) AS open FROM runtime.board_arrivals r CROSS JOIN unnest(r.correlations) AS c
  WHERE r.correlations @> ARRAY[u.id] AND r.org_id = u.org AND c = u.id OFFSET 0
) r
CROSS JOIN LATERAL (
  SELECT count(*) AS open FROM runtime.board_batches b CROSS JOIN unnest(b.correlations) AS c
  WHERE b.correlations @> ARRAY[u.id] AND b.org_id = u.org AND c = u.id OFFSET 0
) b
CROSS JOIN LATERAL (
  SELECT count(*) AS letters, count(*) FILTER (WHERE d.replay_id IS NULL) AS dead
  FROM runtime.board_dead_letters d WHERE d.correlation_id = ${NAMED} OFFSET 0
) d
WHERE a.artifacts > 0`;

const LETTER = "SELECT d.seq, d.replay_id, d.body FROM runtime.board_dead_letters d";
/** A page of an agent's dead letters: agent, before which, limit. */
const LETTERS = `${LETTER} WHERE d.agent = $1 AND d.seq < $2 ORDER BY d.seq DESC LIMIT $3`;
/** The same of one correlation, by both of its names. */
const LETTERS_OF = `${LETTER} WHERE d.agent = $1 AND d.seq < $2 AND d.correlation_id = ANY ($4::text[])
ORDER BY d.seq DESC LIMIT $3`;

/** What can be looked up on the board. */
export function openReads(
  database: Database,
  clock: Clock,
  { agents, window, countUpTo }: CountsOptions & { readonly window: number },
): Reads {
  const related = new KeptFigures<CorrelationCounts>(clock, {
    nameOf: ({ org, correlationId }) => textOf({ org, name: correlationId }),
    rowsOf: ({ artifacts, open, done }) => (open > 0 ? artifacts + open + done : 0),
  });

  async function countCorrelations(texts: readonly string[]): Promise<CorrelationCounts[]> {
    const names = texts.map(nameOf);
    const rows = await database.query<
      Record<Exclude<keyof CorrelationCounts, "correlationId">, unknown> & { id: string }
    >({
      name: "board_correlations",
      text: CORRELATIONS,
      values: [names.map(({ org }) => org), names.map(({ name }) => name)],
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
      const most = Math.min(limit, window);
      const values = [org, type ?? null, most, type === undefined ? most : window];
      const rows = await database.query<{ body: string }>({ name: "board_recent", text: RECENT, values });
      return rows.map(({ body }) => JSON.parse(body) as Artifact);
    },

    correlations: (names) => related.get(names.map(textOf), countCorrelations),

    async deadLetters(agent, { after, limit, correlation }): Promise<DeadLetterPage> {
      const before = after !== undefined && NUMBER.test(after) ? BigInt(after) : 2n ** 62n;
      const values = [agent, before, limit + 1];
      const rows = await database.query<LetterRow>(
        correlation === undefined
          ? { name: "board_letters", text: LETTERS, values }
          : {
              name: "board_letters_of",
              text: LETTERS_OF,
              values: [...values, [columnOf(correlation), correlation.name]],
            },
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

/** A name as one text, and back. */
function textOf({ org, name }: CorrelationName): string {
  return JSON.stringify([org, name]);
}

function nameOf(text: string): CorrelationName {
  const [org, name] = JSON.parse(text) as [string, string];
  return { org, name };
}

function columnOf({ org, name }: CorrelationName): string | null {
  return correlationColumn({ org_id: org, correlation_id: name });
}

function letterOf({ body, replay_id }: LetterRow): DeadLetter {
  const letter = JSON.parse(body) as DeadLetter;
  return replay_id === null ? letter : { ...letter, replay_id };
}
