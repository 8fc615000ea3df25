// Runs and workers in a terminal: node --conditions=khala-source examples/desktop_status/main.ts
import { DatabaseSync } from "node:sqlite";
import { sqlite } from "@khala/client/storage";
import { openStatus } from "./status.ts";

const url = process.env.KHALA_URL ?? "http://127.0.0.1:4000";
const scopes = ["runtime.run_summaries", "runtime.codex_worker_summaries"];

/** In development the server gives a token to anybody on this machine. In production ask your own backend. */
async function token(): Promise<string> {
  const answer = await fetch(`${url}/api/sync/token`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ sub: "dev", org_id: "demo", scopes }),
  });
  const { token } = (await answer.json()) as { token: string };
  return token;
}

const database = new DatabaseSync(process.argv[2] ?? "desktop_status.db");
const status = openStatus({ url, token, storage: sqlite(database) });
let shown = "";
status.subscribe(() => {
  const lines = status.lines().join("\n  ");
  if (lines !== shown) console.log(`\n${lines}`);
  shown = lines;
});
process.once("SIGINT", () => void status.close().then(() => database.close()));
