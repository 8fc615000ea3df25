import { createKhala, type Khala, readConfig } from "@khala/server";
import { eventually } from "@khala/test-support/kit/eventually";
import { runCli } from "@khala/test-support/processes/run_cli";
import { pino } from "pino";
import { expect, inject } from "vitest";
import app from "../../packages/cli/src/demo/app.ts";

/** How the stock server and its pooler are reached; see stockPostgres() and pgbouncer(). */
export const { postgres: stock = {}, pgbouncer: pooler } = inject("services");

const SETTINGS = {
  KHALA_PORT: "0",
  KHALA_AUTH_SECRETS: `test:${Buffer.alloc(32, 7).toString("base64")}`,
  KHALA_DATABASE_POOL: "4",
  // What one server writes, another hears of by LISTEN, or not in time.
  KHALA_POLL_MS: "300000",
};

/** Starts a server with the demo app. */
export function startDemo(databaseUrl: string, log = pino({ level: "silent" })): Promise<Khala> {
  const config = readConfig({ ...SETTINGS, DATABASE_URL: databaseUrl });
  return createKhala(app, { config, dev: true, log });
}

/** Uses each plane through two servers: what one writes, the other shows. Fails if either one logs a warning. */
export async function useEveryPlane(databaseUrl: string): Promise<void> {
  await using servers = new AsyncDisposableStack();
  const warnings: string[] = [];
  const log = pino({ level: "warn" }, { write: (line: string) => void warnings.push(line) });
  const start = async () => {
    const khala = await startDemo(databaseUrl, log);
    servers.defer(() => khala.stop());
    const { token } = await khala.auth.issuer!.mint({
      sub: "ada",
      org_id: "acme",
      scopes: ["runtime.run_summaries", "runtime:write", "chat", "blackboard:read", "blackboard:write"],
    });
    return {
      url: khala.url,
      token,
      run: async (...args: string[]) => {
        const { code, out, err } = await runCli([...args, "--url", khala.url, "--token", token]);
        expect(code, err).toBe(0);
        return out;
      },
    };
  };
  const [one, two] = [await start(), await start()];

  const followed = two.run("tail", "runtime.run_summaries", "--count", "1", "--json", "--quiet");
  await one.run("append", "run", "hello", "run.started", '{"title":"Hello"}');
  expect(await followed).toContain("hello");

  const answer = await one.run("chat", "--conv", "trip", "--json", "How is the weather in Oslo?");
  expect(JSON.parse(answer)).toMatchObject({ status: "finished", text: expect.stringContaining("Oslo") });

  await one.run("publish", "Topic", "--payload", '{"topic":"sessions"}', "--correlation", "request");
  await eventually("an agent has worked", async () => {
    const headers = { authorization: `Bearer ${two.token}` };
    const response = await fetch(`${two.url}/blackboard/v1/correlations/request`, { headers });
    const { done = "0" } = (await response.json()) as { done?: string };
    return done !== "0";
  });
  expect(warnings).toEqual([]);
}

/** What `khala doctor` finds about a database, by check. */
export async function examine(databaseUrl: string): Promise<Record<string, string>> {
  const { out } = await runCli(["doctor", "--json", "--port", "0"], { DATABASE_URL: databaseUrl });
  const findings = JSON.parse(out) as { check: string; state: string; detail: string; fix?: string }[];
  return Object.fromEntries(
    findings.map(({ check, state, detail, fix }) => [check, `${state}: ${detail}${fix ? ` ${fix}` : ""}`]),
  );
}
