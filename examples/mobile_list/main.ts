// Shows the list in a terminal, as a phone would on its screen: node --conditions=khala-source examples/mobile_list/main.ts
import { fileStore } from "./file_store.ts";
import { openRunList } from "./run_list.ts";

const url = process.env.KHALA_URL ?? "http://127.0.0.1:4000";

/** In development the server gives a token to anybody on this machine. In production ask your own backend. */
async function token(): Promise<string> {
  const answer = await fetch(`${url}/api/sync/token`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ sub: "dev", org_id: "demo", scopes: ["runtime.run_summaries"] }),
  });
  const { token } = (await answer.json()) as { token: string };
  return token;
}

const list = openRunList({ url, token, store: fileStore(process.argv[2] ?? "mobile_list.json") });
list.subscribe(() => {
  const { rows, notice } = list.state();
  console.log(`\n${notice || "Up to date."}`);
  for (const { title, status } of rows) console.log(`  ${title} (${status})`);
});
process.once("SIGINT", () => void list.close());
