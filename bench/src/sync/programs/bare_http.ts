import { randomUUID } from "node:crypto";
import { runSummaries } from "@khala/server";
import { type FastifyInstance, type FastifyRequest, fastify } from "fastify";
import { jwtVerify } from "jose";
import pg from "pg";
import { serve } from "../../kit/program.ts";
import { SECRET } from "../tokens.ts";

const READ = `SELECT doc_key, doc_version::text, payload, encode(payload_hash, 'hex') AS payload_hash, updated_at
  FROM runtime.${runSummaries.table}`;

let server: FastifyInstance | undefined;
let pool: pg.Pool | undefined;

/** The org of a valid token. */
async function orgOf({ headers }: FastifyRequest): Promise<string> {
  const { payload } = await jwtVerify(headers.authorization!.slice("Bearer ".length), SECRET);
  return payload.oa_org_id as string;
}

interface Row {
  readonly payload: Buffer;
}

/** The document as Khala answers it. */
function document({ payload, ...rest }: Row): object {
  return { ...rest, payload: JSON.parse(payload.toString()) };
}

const methods = {
  /** Routes that each verify a token and run one statement: what somebody would write by hand, with no promises beyond that. */
  async open({ url }: { url: string }): Promise<{ port: number }> {
    pool = new pg.Pool({ connectionString: url, max: 10 });
    server = fastify();
    await pool.query(
      "CREATE TABLE IF NOT EXISTS bare_events (id uuid PRIMARY KEY, org text, run text, event jsonb)",
    );
    await pool.query(
      "CREATE TABLE IF NOT EXISTS bare_artifacts (id uuid PRIMARY KEY, org text, artifact jsonb)",
    );
    server.get("/sync/v1/doc/:key", async (request) => {
      const org = await orgOf(request);
      const { key } = request.params as { key: string };
      const text = `${READ} WHERE org_id = $1 AND doc_key = $2 AND NOT deleted AND audience IS NULL`;
      const { rows } = await pool!.query<Row>({ name: "doc", text, values: [org, key] });
      return document(rows[0]!);
    });
    server.get("/sync/v1/list/:topic", async (request) => {
      const org = await orgOf(request);
      const { limit } = request.query as { limit: string };
      const text = `${READ} WHERE org_id = $1 AND NOT deleted AND audience IS NULL ORDER BY doc_key LIMIT $2`;
      const { rows } = await pool!.query<Row>({ name: "list", text, values: [org, limit] });
      return { documents: rows.map(document) };
    });
    server.post("/runtime/v1/runs/:run/events", async (request, reply) => {
      const org = await orgOf(request);
      const { run } = request.params as { run: string };
      const [event] = (request.body as { events: object[] }).events;
      const text = "INSERT INTO bare_events (id, org, run, event) VALUES ($1, $2, $3, $4)";
      await pool!.query({ name: "append", text, values: [randomUUID(), org, run, event] });
      return reply.code(201).send({ seq: "1" });
    });
    server.post("/blackboard/v1/artifacts", async (request, reply) => {
      const org = await orgOf(request);
      const id = randomUUID();
      const text = "INSERT INTO bare_artifacts (id, org, artifact) VALUES ($1, $2, $3)";
      await pool!.query({ name: "publish", text, values: [id, org, request.body] });
      return reply.code(201).send({ artifacts: [{ id, status: "published" }] });
    });
    await server.listen({ port: 0, host: "127.0.0.1" });
    return { port: (server.server.address() as { port: number }).port };
  },
};

/** What this program can be asked. */
export type BareHttp = typeof methods;

serve(methods, async () => {
  await server?.close();
  await pool?.end();
});
