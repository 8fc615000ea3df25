import type { TLSSocket } from "node:tls";
import type { Config } from "@khala/server";
import {
  findPooling,
  findReadOnly,
  inspectSchema,
  NEEDS_SESSIONS,
  type Pooling,
  type ReadOnly,
  SCHEMA_VERSION,
} from "@khala/server/operations";
import type pg from "pg";
import { COMMAND } from "../environment.ts";
import { reasonOf } from "../failure.ts";
import { databaseUrlOf, openClient, queryOnce } from "../local/operate.ts";
import { type Finding, ok, problem, warning } from "./finding.ts";

const MOST_SKEW_MS = 5_000;
const LOOPBACK = /^(127\.|localhost$|\[?::1\]?$|$)/;
const VERIFY = "Add ?sslmode=verify-full&sslrootcert=/path/to/ca.pem to DATABASE_URL.";

interface Server {
  readonly version: number;
  readonly release: string;
  readonly nowMs: number;
  readonly role: string;
  readonly mayCreate: boolean;
}

/** Checks that the database is reachable and new enough, has a known schema, and agrees on the time. */
export async function checkDatabase(config: Config): Promise<Finding[]> {
  const url = databaseUrlOf(config);
  if (!url) return [ok("database", "the embedded one has not been started yet")];
  let client: pg.Client;
  try {
    client = await openClient(url);
  } catch (error) {
    // The file stays behind when the embedded server is stopped.
    if (!config.DATABASE_URL)
      return [ok("database", "the embedded one is not running; `khala dev` starts it")];
    const reason = reasonOf(error as Error);
    const fix = /certificate|altnames|SSL/i.test(reason)
      ? "Correct DATABASE_URL: its host must be in the certificate, and sslrootcert must be the authority that signed it."
      : "Start it, or correct DATABASE_URL: postgres://user:password@host:5432/name.";
    return [problem("database", `it cannot be reached: ${reason}`, fix)];
  }
  try {
    const asked = Date.now();
    const server = await readServer(client);
    const aheadMs = server.nowMs - (asked + Date.now()) / 2;
    const pooling = await findPooling(client, () => openClient(url));
    const pooler = pooling && (await nameOfPooler(url));
    return [
      checkServer(server, await findReadOnly(client), pooling, pooler),
      checkTls(client, url),
      await checkSchema(client, server),
      checkClock(aheadMs),
    ];
  } finally {
    await client.end();
  }
}

async function readServer(client: pg.Client): Promise<Server> {
  const { rows } = await client.query<Server>(
    `SELECT current_setting('server_version_num')::int AS version, current_setting('server_version') AS release,
      round(extract(epoch FROM clock_timestamp()) * 1000)::text AS "nowMs", current_user AS role,
      CASE WHEN to_regnamespace('runtime') IS NULL THEN has_database_privilege(current_database(), 'CREATE')
        ELSE has_schema_privilege('runtime', 'CREATE') END AS "mayCreate"`,
  );
  const [server] = rows;
  // As text: `extra_float_digits` may round a float.
  return { ...server!, nowMs: Number(server!.nowMs) };
}

/** PgBouncer lets only its administrators into the database that reports its version. */
async function nameOfPooler(url: string): Promise<string> {
  try {
    const console = new URL(url);
    console.pathname = "/pgbouncer";
    const [row] = await queryOnce<{ version: string }>(console.toString(), { text: "SHOW VERSION" });
    return row!.version;
  } catch (error) {
    return (error as Error).message === "not allowed" ? "PgBouncer" : "a pooler";
  }
}

function checkServer(
  { version, release }: Server,
  readOnly?: ReadOnly,
  pooling?: Pooling,
  pooler?: string,
): Finding {
  const server = `PostgreSQL ${release}`;
  if (version < 140_000) return problem("database", `${server} is too old`, "Use PostgreSQL 14 or later.");
  if (readOnly) return problem("database", `${server} answers, but ${readOnly.reason}`, readOnly.fix);
  if (!pooling) return ok("database", `${server} answers`);
  const detail = `${pooler} in ${pooling} mode in front of ${server}`;
  return pooling === "session" ? ok("database", detail) : problem("database", detail, NEEDS_SESSIONS);
}

function checkTls(client: pg.Client, url: string): Finding {
  // The connection settings of pg, once it is connected.
  const socket = client.connection.stream as TLSSocket;
  if (socket.encrypted) {
    const on = `on, ${socket.getProtocol()}`;
    if (socket.authorized) return ok("TLS to the database", `${on}, with a verified certificate`);
    return warning("TLS to the database", `${on}, with a certificate that is not verified`, VERIFY);
  }
  const { hostname, searchParams } = new URL(url);
  if (LOOPBACK.test(searchParams.get("host") ?? hostname))
    return ok("TLS to the database", "off, on this machine");
  return warning("TLS to the database", "off: documents cross the network in plain text", VERIFY);
}

async function checkSchema(client: pg.Client, { mayCreate, role }: Server): Promise<Finding> {
  const { created, foreign } = await inspectSchema(client);
  if (foreign) return problem("schema", foreign.reason, foreign.fix);
  const grant = `Run \`${COMMAND} migrate --app <file> --grant ${role}\` with the role that owns the schema.`;
  if (!created) {
    if (mayCreate) return ok("schema", "not created yet; the first start creates it");
    return problem("schema", `not created yet, and the role ${role} may not create it`, grant);
  }
  let applied: { readonly schema: number; readonly contracted: number };
  try {
    const { rows } = await client.query<typeof applied>(
      `SELECT coalesce(max(version), 0) AS schema, coalesce(max(version) FILTER (WHERE contracts), 0) AS contracted
        FROM runtime.schema_migrations`,
    );
    applied = rows[0]!;
  } catch (error) {
    return problem("schema", `it cannot be read: ${reasonOf(error as Error)}`, grant);
  }
  const { schema, contracted } = applied;
  // Servers from before it cannot work with it.
  if (contracted > SCHEMA_VERSION) {
    const fix = "Run the newer Khala that migrated it, or restore a backup from before the upgrade.";
    return problem("schema", `version ${schema}; this Khala supports up to ${SCHEMA_VERSION}`, fix);
  }
  if (schema > SCHEMA_VERSION)
    return ok("schema", `version ${schema}, of a newer Khala; this Khala (${SCHEMA_VERSION}) works with it`);
  if (schema === SCHEMA_VERSION) return ok("schema", `version ${schema}`);
  const fix = mayCreate ? "Nothing to do: the next start updates it." : grant;
  return warning("schema", `version ${schema} of ${SCHEMA_VERSION}`, fix);
}

function checkClock(aheadMs: number): Finding {
  const seconds = (Math.abs(aheadMs) / 1_000).toFixed(1);
  if (Math.abs(aheadMs) < MOST_SKEW_MS)
    return ok("clock", `differs from the database's by less than ${seconds} s`);
  const fix = "Synchronise both machines (NTP): tokens and retention depend on the clock.";
  return problem("clock", `${seconds} s ${aheadMs > 0 ? "behind" : "ahead of"} the database's`, fix);
}
