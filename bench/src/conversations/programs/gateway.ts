import { createKhala, defineApp, type Khala, readConfig, runSummaries } from "@khala/server";
import type { EngineFactory } from "@khala/server/engines";
import { pooled } from "../../kit/pooled.ts";
import { serve } from "../../kit/program.ts";
import { ORG } from "../../sync/documents.ts";
import { AUTH_SECRETS } from "../../sync/tokens.ts";
import { type Answer, answerTokens, Hold } from "../answer.ts";
import { convId, type Store } from "../bench.ts";

let khala: Khala | undefined;
const hold = new Hold();

/** Its message says how long the answer is; the run goes on until it is released. */
const engine: EngineFactory = () => ({
  async *run({ message }, signal) {
    for await (const text of answerTokens(JSON.parse(message) as Answer)) yield { text_delta: { text } };
    const aborted = Promise.withResolvers<void>();
    signal.addEventListener("abort", () => aborted.resolve(), { once: true });
    await Promise.race([hold.end(), aborted.promise]);
  },
});

const methods = {
  /** Khala with its own defaults, but for what is given, and as many sockets of one person as a measurement wants. */
  async open({ store, graceMs }: { store: Store; graceMs?: number }): Promise<{ port: number }> {
    const config = readConfig({
      DATABASE_URL: store.url,
      REDIS_URL: store.redis,
      KHALA_PORT: "0",
      KHALA_LOG_LEVEL: "error",
      KHALA_AUTH_SECRETS: AUTH_SECRETS,
      KHALA_MAX_SOCKETS_PER_SUBJECT: "20000",
      ...(graceMs !== undefined && { KHALA_CHAT_READER_GRACE_MS: `${graceMs}` }),
    });
    khala = await createKhala(defineApp({ models: [runSummaries], engine }), { config });
    return { port: Number(new URL(khala.url).port) };
  },

  /** Keeps readers of conversations without a socket, as after the last one has left. */
  async attach({ from, count }: { from: number; count: number }): Promise<void> {
    const { conversations } = khala!;
    await pooled(count, 50, async (n) => {
      const caller = { org: ORG, subject: `user_${from + n}`, scopes: new Set(["chat"]) };
      const member = {
        offer: () => true,
        end(error: Error) {
          throw error;
        },
      };
      await conversations.attach(caller, convId(from + n), member, { kind: "now" });
    });
  },

  /** Resolves when the engine has said everything. */
  written: () => hold.written(),

  /** Lets the runs end. */
  async release(): Promise<void> {
    hold.release();
  },

  /** Collects what is garbage; the program must be started with --expose-gc. */
  async collect(): Promise<void> {
    for (let i = 0; i < 3; i++)
      await (globalThis.gc?.({ execution: "async", type: "major" }) as Promise<void>);
  },
};

/** What this program can be asked. */
export type GatewayProgram = typeof methods;

serve(methods, () => khala?.stop());
