import type { Config } from "@khala/server";
import { SCHEMA_VERSION } from "@khala/server/operations";
import { reasonOf } from "../failure.ts";
import { databaseUrlOf, queryOnce } from "../local/operate.ts";
import { type Finding, ok, problem, warning } from "./finding.ts";

const MOST_SKEW_MS = 5_000;

interface State {
  readonly version: number;
  readonly release: string;
  /** Null before the first start. */
  readonly schema: number | null;
  readonly nowMs: number;
}

/** Checks that the database is reachable and new enough, has a known schema, and agrees on the time. */
export async function checkDatabase(config: Config): Promise<Finding[]> {
  const url = databaseUrlOf(config);
  if (!url) return [ok("database", "the embedded one has not been started yet")];
  let state: State;
  let aheadMs: number;
  try {
    const asked = Date.now();
    state = await readState(url);
    aheadMs = state.nowMs - (asked + Date.now()) / 2;
  } catch (error) {
    // The file stays behind when the embedded server is stopped.
    if (!config.DATABASE_URL)
      return [ok("database", "the embedded one is not running; `khala dev` starts it")];
    const fix = "Start it, or correct DATABASE_URL: postgres://user:password@host:5432/name.";
    return [problem("database", `it cannot be reached: ${reasonOf(error as Error)}`, fix)];
  }
  return [checkVersion(state), checkSchema(state), checkClock(aheadMs)];
}

function checkVersion({ version, release }: State): Finding {
  if (version >= 140_000) return ok("database", `PostgreSQL ${release} answers`);
  return problem("database", `PostgreSQL ${release} is too old`, "Use PostgreSQL 14 or later.");
}

function checkSchema({ schema }: State): Finding {
  if (schema === null) return ok("schema", "not created yet; the first start creates it");
  if (schema > SCHEMA_VERSION) {
    const fix = "Run the newer Khala that migrated it, or restore a backup from before the upgrade.";
    return problem("schema", `version ${schema}; this Khala supports up to ${SCHEMA_VERSION}`, fix);
  }
  if (schema < SCHEMA_VERSION)
    return warning(
      "schema",
      `version ${schema} of ${SCHEMA_VERSION}`,
      "The next start brings it up to date; nothing to do.",
    );
  return ok("schema", `version ${schema}`);
}

function checkClock(aheadMs: number): Finding {
  const seconds = (Math.abs(aheadMs) / 1_000).toFixed(1);
  if (Math.abs(aheadMs) < MOST_SKEW_MS) return ok("clock", `agrees with the database's within ${seconds} s`);
  const fix = "Synchronise both machines (NTP): tokens and retention depend on the clock.";
  return problem("clock", `${seconds} s ${aheadMs > 0 ? "behind" : "ahead of"} the database's`, fix);
}

async function readState(url: string): Promise<State> {
  const [row] = await queryOnce<Omit<State, "schema"> & { migrated: boolean }>(url, {
    text: `SELECT current_setting('server_version_num')::int AS version, current_setting('server_version') AS release,
      extract(epoch FROM clock_timestamp())::float8 * 1000 AS "nowMs",
      to_regclass('runtime.schema_migrations') IS NOT NULL AS migrated`,
  });
  const { migrated, ...state } = row!;
  if (!migrated) return { ...state, schema: null };
  const text = "SELECT coalesce(max(version), 0) AS schema FROM runtime.schema_migrations";
  const [applied] = await queryOnce<{ schema: number }>(url, { text });
  return { ...state, schema: applied!.schema };
}
