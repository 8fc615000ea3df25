import type { TestProject } from "vitest/node";
import { pgbouncer } from "../postgres/pgbouncer.ts";
import { stockPostgres } from "../postgres/stock.ts";
import { startServices } from "./services.ts";

/** Vitest's global setup for tests that run a second time on the system's own PostgreSQL; without one, all are skipped. */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const { running, stop } = await startServices([stockPostgres(), pgbouncer()]);
  const stock = running.get("stock postgres");
  const pooler = running.get("pgbouncer");
  if (stock) project.provide("services", { postgres: stock.env, ...(pooler && { pgbouncer: pooler.env }) });
  // A pattern that matches no name.
  else project.config.testNamePattern = /(?!)/;
  return stop;
}
