import { scopes } from "../../../page/scopes.ts";

const server = process.env.KHALA_URL ?? "http://127.0.0.1:4000";

/** Gives the page a token. Put the user of your session here; in production Khala wants its issuer key. */
export async function POST(): Promise<Response> {
  const key = process.env.KHALA_AUTH_ISSUER_KEY;
  const answer = await fetch(`${server}/api/sync/token`, {
    method: "POST",
    headers: { "content-type": "application/json", ...(key && { authorization: `Bearer ${key}` }) },
    body: JSON.stringify({ sub: "dev", org_id: "demo", scopes }),
  });
  return new Response(answer.body, {
    status: answer.status,
    headers: { "content-type": "application/json" },
  });
}
