import { runSummaries } from "@khala/server";
import { docKey, KEYS, ORG, runSummaryText } from "../documents.ts";
import { openKhala } from "./library.ts";

/** Writes documents through the library, from a process that is not the gateway. */
export interface KhalaPublisher {
  /** Writes the next version of the nth document; resolves after its commit. */
  publish(n: number, audience: readonly string[] | null): Promise<void>;
  stop(): Promise<void>;
}

/** Opens Khala as a library. The version of a document is the number of the write, so that it rises. */
export async function khalaPublisher(url: string): Promise<KhalaPublisher> {
  const khala = await openKhala(url);
  let version = 0;
  return {
    async publish(n, audience) {
      const key = n % KEYS;
      await khala.sync.sink.write(runSummaries, {
        docKey: docKey(key),
        docVersion: BigInt(++version),
        op: "upsert",
        payload: runSummaryText(key, n),
        org: ORG,
        audience,
      });
    },
    stop: () => khala.stop(),
  };
}
