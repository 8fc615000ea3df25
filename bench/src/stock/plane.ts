import { withDatabase } from "@khala/test-support/postgres/service";
import { stockPostgres } from "@khala/test-support/postgres/stock";
import pg from "pg";
import type { Plane } from "../kit/plane.ts";
import { startPostgres } from "../kit/postgres.ts";
import { watchOtherLoad } from "../kit/proc.ts";
import { startProgram } from "../kit/program.ts";
import { range } from "../kit/report.ts";
import { spread } from "../kit/stats.ts";
import { program } from "../sync/bench.ts";
import type { KhalaWriter } from "../sync/programs/khala_writer.ts";

const WRITERS = [1, 16, 256] as const;

/** Appends on the system's PostgreSQL with default settings, beside the embedded one with ours. */
export const stockPlane: Plane = {
  parts: ["a"],
  async open({ rounds, quick }, stack) {
    const service = stockPostgres();
    const missing = await service.available();
    if (missing) throw new Error(missing);
    const stock = await service.start();
    stack.defer(stock.stop);
    const embedded = stack.use(await startPostgres());
    const urls = {
      stock: withDatabase(stock.env.DATABASE_URL!, stock.env.TEMPLATE!),
      embedded: await embedded.create("khala"),
    };
    return {
      versions: [await describeStock(urls.stock), embedded.version],
      async measure() {
        await using programs = new AsyncDisposableStack();
        const otherLoad = watchOtherLoad();
        const open = async (url: string) => {
          const writer = programs.use(startProgram<KhalaWriter>(program("khala_writer")));
          await writer.call("open", { url });
          return writer;
        };
        const contestants = { stock: await open(urls.stock), embedded: await open(urls.embedded) };
        const ms = quick ? 500 : 3_000;
        const rates = new Map<string, number[]>();
        for (let round = -1; round < rounds; round++)
          for (const writers of WRITERS)
            for (const [name, writer] of Object.entries(contestants)) {
              const rate = await writer.call("events", { writers, ms: round < 0 ? ms / 3 : ms });
              // The first round warms up.
              if (round >= 0)
                rates.set(`${name} ${writers}`, [...(rates.get(`${name} ${writers}`) ?? []), rate]);
            }
        const of = (name: string, writers: number) => spread(rates.get(`${name} ${writers}`)!);
        return {
          title: "(a) Appends per second, from the event to the journal",
          how: [
            "`authority.append` of one event per writer, one run summary each; both servers run, and take turns",
          ],
          tables: [
            {
              head: ["events/s, median [min–max]", ...WRITERS.map((n) => `${n} writer${n > 1 ? "s" : ""}`)],
              rows: Object.keys(contestants).map((name) => [name, ...WRITERS.map((n) => range(of(name, n)))]),
            },
          ],
          bars: WRITERS.map((n) => ({
            name: `${n} writer${n > 1 ? "s" : ""}, stock ÷ embedded`,
            got: of("stock", n).median / of("embedded", n).median,
            least: 0.8,
          })),
          otherLoad: otherLoad(),
        };
      },
    };
  },
};

async function describeStock(url: string): Promise<string> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  const { rows } = await client
    .query<{ version: string; jit: string }>(
      "SELECT current_setting('server_version') AS version, current_setting('jit') AS jit",
    )
    .finally(() => client.end());
  return `PostgreSQL ${rows[0]!.version} (stock, default settings, jit ${rows[0]!.jit})`;
}
