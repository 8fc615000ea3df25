import { type Khala, runSummaries } from "@khala/server";
import { docKey, KEYS, ORG, runSummaryText } from "../documents.ts";
import { openKhala } from "./library.ts";

/** Writes documents through the library. */
export interface KhalaPublisher {
  /** Writes the next version of the nth document; resolves after its commit. */
  publish(n: number, audience: readonly string[] | null): Promise<void>;
  stop(): Promise<void>;
}

/** Writes documents with a server. The version of a document is the number of the write, so that it rises. */
export function publisherOf({ sync }: Khala): KhalaPublisher["publish"] {
  let version = 0;
  return async (n, audience) => {
    const key = n % KEYS;
    await sync.sink.write(runSummaries, {
      docKey: docKey(key),
      docVersion: BigInt(++version),
      op: "upsert",
      payload: runSummaryText(key, n),
      org: ORG,
      audience,
    });
  };
}

/** Opens Khala as a library. */
export async function khalaPublisher(url: string): Promise<KhalaPublisher> {
  const khala = await openKhala(url);
  return { publish: publisherOf(khala), stop: () => khala.stop() };
}
