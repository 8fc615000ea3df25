import { createClient } from "@khala/client";
import { hooksOf } from "@khala/client/react";
import { indexedDb } from "@khala/client/storage";
import { z } from "zod";
import type app from "../khala/app.ts";
import { scopes } from "./scopes.ts";

/** In development the server gives a token to anybody on this machine. In production your own backend does. */
async function token(): Promise<string> {
  const answer = await fetch("/api/sync/token", {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ sub: "dev", org_id: "demo", scopes }),
  });
  if (!answer.ok) throw new Error(`No token: ${answer.status}. Is the server running?`);
  return z.object({ token: z.string() }).parse(await answer.json()).token;
}

/** The client. It knows the documents and artifacts of the app. */
export const khala = createClient<typeof app>({ url: location.origin, token, storage: indexedDb() });

/** Hooks that know them too. */
export const { useAppend, useDoc, useList } = hooksOf<typeof app>();
