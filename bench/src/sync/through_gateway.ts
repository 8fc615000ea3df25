import { runSummaries } from "@khala/server";
import { watchOtherLoad } from "../kit/proc.ts";
import { startProgram } from "../kit/program.ts";
import { range } from "../kit/report.ts";
import { spread } from "../kit/stats.ts";
import { type PartRunner, program } from "./bench.ts";
import { KEYS } from "./documents.ts";
import type { BareHttp } from "./programs/bare_http.ts";
import type { GatewayProgram } from "./programs/gateway.ts";
import { type HttpLoad, ROUTES } from "./programs/http_load.ts";
import type { KhalaWriter } from "./programs/khala_writer.ts";
import { mintToken } from "./tokens.ts";

const CLIENTS = 16;

/** (f) Requests through the gateway, beside a bare server that verifies the token and runs one statement. */
export const throughGateway: PartRunner = async ({ postgres, rounds, quick }) => {
  await using stack = new AsyncDisposableStack();
  const url = await postgres.create("khala");
  {
    // Ended before the measurement: it is a whole server.
    await using writer = startProgram<KhalaWriter>(program("khala_writer"));
    await writer.call("open", { url });
    await writer.call("write", { documents: KEYS, foreign: false });
  }
  const khala = stack.use(startProgram<GatewayProgram>(program("gateway")));
  const bare = stack.use(startProgram<BareHttp>(program("bare_http")));
  const load = stack.use(startProgram<HttpLoad>(program("http_load")));
  const ports = {
    Khala: (await khala.call("open", { url })).port,
    "Fastify, jose and SQL": (await bare.call("open", { url })).port,
  };
  const token = await mintToken([runSummaries.topic, "runtime:write", "blackboard:write"]);
  const otherLoad = watchOtherLoad();
  const ms = quick ? 500 : 3_000;
  const rates = new Map<string, number[]>();
  for (let round = -1; round < rounds; round++)
    for (const route of ROUTES)
      for (const [name, port] of Object.entries(ports)) {
        await postgres.checkpoint();
        const rate = await load.call("run", { port, token, route, clients: CLIENTS, ms });
        // The first round warms up.
        if (round >= 0) rates.set(`${name} ${route}`, [...(rates.get(`${name} ${route}`) ?? []), rate]);
      }
  const of = (name: string, route: string) => spread(rates.get(`${name} ${route}`)!);
  return {
    title: "(f) Requests per second through the gateway",
    how: [
      `${CLIENTS} clients on kept-alive connections, each sends the next request when the one before is answered; ${KEYS.toLocaleString("en")} documents of about 300 bytes`,
      "bare: Fastify verifies the token with jose and runs one prepared statement on a pool of 10; an event or artifact is one INSERT, without a document, journal, routing or deduplication",
      "Khala: the whole server; an event is durable with its position when it is answered, and its document follows; an artifact is durable and its tasks are routed",
    ],
    tables: [
      {
        head: ["requests/s, median [min–max]", ...ROUTES],
        rows: Object.keys(ports).map((name) => [name, ...ROUTES.map((route) => range(of(name, route)))]),
      },
    ],
    bars: ROUTES.map((route) => ({
      name: `${route}, Khala ÷ bare`,
      got: of("Khala", route).median / of("Fastify, jose and SQL", route).median,
      least: 0.8,
    })),
    otherLoad: otherLoad(),
  };
};
