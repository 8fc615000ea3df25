import type { TestProject } from "vitest/node";
import { pgbouncer } from "../postgres/pgbouncer.ts";
import { oldestPostgres, stockPostgres } from "../postgres/stock.ts";
import { startServices } from "./services.ts";

/** npm has the oldest PostgreSQL for this platform alone. */
const HAS_OLDEST = process.platform === "linux" && process.arch === "x64";

/** Vitest's global setup for tests that run again on another PostgreSQL, the system's own or the oldest; without one, all are skipped. */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const { running, stop } = await (project.name === "oldest"
    ? startServices([oldestPostgres()], process.env.CI === "true" && HAS_OLDEST)
    : startServices([stockPostgres(), pgbouncer()]));
  const [postgres] = running.values();
  const pooler = running.get("pgbouncer");
  if (postgres && postgres !== pooler)
    project.provide("services", { postgres: postgres.env, ...(pooler && { pgbouncer: pooler.env }) });
  // A pattern that matches no name.
  else project.config.testNamePattern = /(?!)/;
  return stop;
}
