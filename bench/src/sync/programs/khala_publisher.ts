import { randomUUID } from "node:crypto";
import { type Khala, runs } from "@khala/server";
import { KEYS, ORG, runId } from "../documents.ts";
import { openKhala } from "./library.ts";

/** Appends events, of which Khala makes documents. */
export interface KhalaPublisher {
  /** Appends the nth event, which makes a new version of a document; for an audience the title says n. Resolves after the commit. */
  publish(n: number, audience?: readonly string[]): Promise<void>;
  stop(): Promise<void>;
}

/** Appends to the runs in turn with a server. Their documents have about 300 bytes. */
export function publisherOf({ authority }: Khala, org = ORG): KhalaPublisher["publish"] {
  const begun = new Set<number>();
  return async (n, audience) => {
    const key = n % KEYS;
    await authority.append({
      stream: runs,
      streamId: runId(key),
      events: [{ event_id: randomUUID(), ...eventOf(n, !begun.has(key), audience) }],
      org,
      actor: `user_${key % 97}`,
    });
    begun.add(key);
  };
}

function eventOf(n: number, isFirst: boolean, audience: readonly string[] | undefined) {
  if (isFirst || audience) {
    const title = `Review pull request ${n} and answer the open questions`;
    return { type: "run.started", data: { title, ...(audience && { audience: [...audience] }) } };
  }
  return { type: "run.step", data: { name: `read src/module_${n % 40}.ts`, status: "done" } };
}

/** Opens Khala as a library. */
export async function khalaPublisher(url: string): Promise<KhalaPublisher> {
  const khala = await openKhala(url);
  return { publish: publisherOf(khala), stop: () => khala.stop() };
}
