import { createClient } from "@khala/client";
import { hooksOf } from "@khala/client/react";
import { indexedDb } from "@khala/client/storage";
import type app from "../app.ts";

/** In development the server gives a token to anybody on this machine. In production ask your own backend. */
export async function token(): Promise<string> {
  const answer = await fetch("/api/sync/token", {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ sub: "dev", org_id: "demo", scopes: ["chat", "runtime.run_summaries"] }),
  });
  if (!answer.ok) throw new Error(`There is no token to be had: ${answer.status}.`);
  const { token } = (await answer.json()) as { token: string };
  return token;
}

export const khala = createClient<typeof app>({ url: location.origin, token, storage: indexedDb() });

/** Hooks that know the documents of the app. */
export const { useList } = hooksOf<typeof app>();
