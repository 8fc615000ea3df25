import { type Khala, runSummaries } from "@khala/server";
import pg from "pg";
import { serve } from "../../kit/program.ts";
import { openKhala } from "./library.ts";

let khala: Khala | undefined;

/** How often each named statement was sent, so that reads of the journal can be told from the rest. */
const statements = new Map<string, number>();
const { query } = pg.Client.prototype;
pg.Client.prototype.query = function (this: pg.Client, ...args: [{ name?: string }]) {
  const name = args[0]?.name;
  if (name) statements.set(name, (statements.get(name) ?? 0) + 1);
  return Reflect.apply(query, this, args);
} as typeof query;

const methods = {
  async open({ url }: { url: string }): Promise<{ port: number }> {
    khala = await openKhala(url);
    return { port: Number(new URL(khala.url).port) };
  },

  /** Reads of the journal so far: of everybody's rows, and for viewers who are behind. */
  async reads(): Promise<number> {
    const { table } = runSummaries;
    return (statements.get(`sync_read_${table}`) ?? 0) + (statements.get(`sync_wanted_${table}`) ?? 0);
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
