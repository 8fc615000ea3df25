import { createClient } from "@khala/client";
import { hooksOf } from "@khala/client/react";
import { indexedDb } from "@khala/client/storage";
import { z } from "zod";
import type app from "../khala/app.ts";

/** Where the browser finds Khala. In development it accepts every page of this machine; in production name yours in KHALA_ORIGINS. */
const url = process.env.NEXT_PUBLIC_KHALA_URL ?? "http://127.0.0.1:4000";

/** app/api/token/route.ts decides who this is. */
async function token(): Promise<string> {
  const answer = await fetch("/api/token", { method: "POST" });
  if (!answer.ok) throw new Error(`No token: ${answer.status}. Is the server running?`);
  return z.object({ token: z.string() }).parse(await answer.json()).token;
}

/** The client. It knows the documents and artifacts of the app. */
export const khala = createClient<typeof app>({ url, token, storage: indexedDb() });

/** Hooks that know them too. */
export const { useAppend, useDoc, useList } = hooksOf<typeof app>();
