import { readdirSync, readFileSync } from "node:fs";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { startKhala } from "@khala/test-support/processes/processes";
import pg from "pg";
import { expect, test, vi } from "vitest";
import { halfLoad } from "./support/soak_load.ts";
import { type Series, soakPlot } from "./support/soak_plot.ts";

/** `npm run test:chaos -- soak --minutes 120`; two minutes unless they are given. */
const MINUTES = Number(process.env.KHALA_CHAOS_MINUTES) || 2;
const EVERY_MS = 5_000;
vi.setConfig({ testTimeout: (MINUTES + 5) * 60_000 });

const FOLDER = join(import.meta.dirname, "../../.cache/soak");
/** A figure may end so much above what it was in the second quarter: the first one warms up, for ten minutes or so. */
const GROWTH = 1.25;
const JUDGED_FROM_MINUTES = 20;
/** These grow with what is kept, or in large steps between bounds of PostgreSQL's own. */
const SHOWN_ONLY = new Set(["database, MB", "dead rows per live row", "WAL, MB"]);

const FIGURES = `SELECT
  (SELECT count(*)::int FROM pg_stat_activity WHERE backend_type = 'client backend') AS connections,
  (SELECT sum(size)::float8 FROM pg_ls_waldir()) / 1e6 AS "WAL, MB",
  (SELECT count(*)::int FROM runtime.leases) AS leases,
  (SELECT count(*)::int FROM runtime.conversations WHERE lease_until IS NOT NULL) AS "runs with a lease",
  (SELECT sum(n_dead_tup)::float8 FROM pg_stat_user_tables) / nullif(sum(n_live_tup)::float8, 0) AS "dead rows per live row",
  pg_database_size(current_database()) / 1e6 AS "database, MB"
  FROM pg_stat_user_tables`;

test(`${MINUTES} minutes of half load on every plane leave nothing behind`, async () => {
  const dataDir = await mkdtemp(join(tmpdir(), "khala-soak-"));
  try {
    await using server = await startKhala({
      command: "dev",
      args: ["--no-activity"],
      env: { KHALA_DATA_DIR: dataDir },
    });
    const database = new pg.Client({
      connectionString: readFileSync(join(dataDir, "postgres/database_url"), "utf8").trim(),
    });
    await database.connect();
    const ending = new AbortController();
    const load = halfLoad({ url: server.url, token: tokens(server.url) }, ending.signal);
    const series = new Map<string, [number, number][]>();
    const began = performance.now();
    for (let minute = 0; minute < MINUTES; minute = (performance.now() - began) / 60_000) {
      await delay(EVERY_MS);
      const { rows } = await database.query<Record<string, number>>(FIGURES);
      const figures = { ...processFigures(server.pid), ...rows[0] };
      for (const [name, value] of Object.entries(figures))
        series.set(name, [...(series.get(name) ?? []), [minute, Number(value ?? 0)]]);
    }
    ending.abort();
    const { done, failures } = await load;
    await database.end();
    const all: Series[] = [...series].map(([name, points]) => ({ name, points }));
    await mkdir(FOLDER, { recursive: true });
    await writeFile(join(FOLDER, "soak.svg"), soakPlot(all));
    await writeFile(
      join(FOLDER, "soak.json"),
      JSON.stringify({ minutes: MINUTES, done, series: all }, null, 1),
    );
    console.log(`${JSON.stringify(done)}; the plot is .cache/soak/soak.svg`);
    expect(failures.slice(0, 5)).toEqual([]);
    if (MINUTES < JUDGED_FROM_MINUTES) return;
    const growing = all
      .filter(({ name }) => !SHOWN_ONLY.has(name))
      .map(({ name, points }) => ({ name, growth: growthOf(points.map(([, value]) => value)) }))
      .filter(({ growth }) => growth > GROWTH);
    expect(growing).toEqual([]);
  } finally {
    await rm(dataDir, { recursive: true, force: true });
  }
});

/** The median of the last quarter ÷ that of the second. */
function growthOf(values: readonly number[]): number {
  const quarter = (n: number) =>
    values
      .slice(Math.floor((values.length * (n - 1)) / 4), Math.ceil((values.length * n) / 4))
      .toSorted((a, b) => a - b);
  const median = (sorted: readonly number[]) => sorted[Math.floor(sorted.length / 2)]!;
  // A handful more of something that is counted in units is no growth.
  return (median(quarter(4)) + 4) / (median(quarter(2)) + 4);
}

/** The server's process, without its PostgreSQL. */
function processFigures(pid: number): Record<string, number> {
  const status = readFileSync(`/proc/${pid}/status`, "utf8");
  const rss = Number(/VmRSS:\s+(\d+)/.exec(status)![1]);
  return { "memory, MB": rss / 1e3, "file handles": readdirSync(`/proc/${pid}/fd`).length };
}

/** Mints a token of the demo, and a new one before it expires. */
function tokens(url: string): () => Promise<string> {
  let current: { token: Promise<string>; until: number } | undefined;
  return () => {
    if (!current || Date.now() > current.until) {
      const scopes = [
        "runtime.run_summaries",
        "runtime:write",
        "chat",
        "blackboard:read",
        "blackboard:write",
      ];
      const body = JSON.stringify({ sub: "soak", org_id: "demo", scopes, ttl_s: 900 });
      const headers = { "content-type": "application/json" };
      const token = fetch(`${url}/api/sync/token`, { method: "POST", headers, body })
        .then((response) => response.json() as Promise<{ token: string }>)
        .then((answer) => answer.token);
      current = { token, until: Date.now() + 600_000 };
    }
    return current.token;
  };
}
