import { agent, createKhala, defineApp, type Khala, readConfig } from "@khala/server";
import { serve } from "../../kit/program.ts";
import { AUTH_SECRETS } from "../../sync/tokens.ts";

let khala: Khala | undefined;
let ran = Promise.withResolvers<bigint>();

const only = agent("only", {
  consumes: "A",
  run: () => ran.resolve(process.hrtime.bigint()),
});

const methods = {
  /** A whole server with its own settings and one agent. */
  async open({ url }: { url: string }): Promise<{ port: number }> {
    const config = readConfig({
      DATABASE_URL: url,
      KHALA_PORT: "0",
      KHALA_LOG_LEVEL: "error",
      KHALA_AUTH_SECRETS: AUTH_SECRETS,
    });
    khala = await createKhala(defineApp({ models: [], agents: [only] }), { config });
    return { port: Number(new URL(khala.url).port) };
  },

  /** Takes the time at which the agent ran, from the clock that all processes of the machine share. */
  async ran(_: undefined): Promise<bigint> {
    const at = await ran.promise;
    ran = Promise.withResolvers();
    return at;
  },
};

/** What this program can be asked. */
export type IdleServer = typeof methods;

serve(methods, () => khala?.stop());
