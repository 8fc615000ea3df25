import { createClient } from "@khala/client";
import type app from "./app.ts";

const url = process.env.KHALA_URL ?? "http://127.0.0.1:4000";
const topic = "app.progress";

/** In development the server gives a token to anybody on this machine. In production your own backend does. */
async function token(): Promise<string> {
  const answer = await fetch(`${url}/api/sync/token`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ sub: "dev", org_id: "demo", scopes: [topic] }),
  });
  const { token } = (await answer.json()) as { token: string };
  return token;
}

const khala = createClient<typeof app>({ url, token });
khala.sync.subscribe(topic, () => {
  for (const { key, data } of khala.sync.list(topic).items) {
    console.log(key, data?.title, data?.done ? "✓" : "…", data?.steps.join(" → "));
  }
});
