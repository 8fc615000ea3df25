import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { KhalaError } from "@khala/contracts";
import type { Context } from "../../kit/context.ts";
import type { Service } from "../../kit/service.ts";
import { type Health, type HealthAnswer, healthAnswers } from "./health.ts";
import { httpUrl, type ListenOptions, listenError } from "./http.ts";

/** The address of a worker's health endpoints. */
export interface WorkerHealthServer extends Service {
  readonly url: string;
}

export interface WorkerHealthServerOptions extends ListenOptions {
  readonly health: Health;
  /** How long a request may take to arrive. */
  readonly requestMs?: number;
}

const REQUEST_MS = 10_000;
/** A connection without traffic for this long is closed. */
const IDLE_MS = 30_000;
/** Enough for probes and a few scrapers; more must not slow the agents down. */
const MAX_CONNECTIONS = 64;
const MAX_HEADER_BYTES = 8 << 10;

/** Lets a worker be watched: `/healthz`, `/readyz` and `/metrics`, as a server has them, and nothing else. Resolves when it listens. */
export async function openWorkerHealthServer(
  context: Context,
  options: WorkerHealthServerOptions,
): Promise<WorkerHealthServer> {
  const { host, port, health, requestMs = REQUEST_MS } = options;
  const scrape = () => context.telemetry.scrape();
  const answers = new Map<string, () => Promise<HealthAnswer>>(
    Object.entries(healthAnswers({ clock: context.clock, health, scrape })),
  );

  async function answer({ method = "", url = "" }: IncomingMessage): Promise<HealthAnswer> {
    const path = url.split("?")[0]!;
    const ask = method === "GET" || method === "HEAD" ? answers.get(path) : undefined;
    if (!ask)
      return failed(new KhalaError("not_found", `There is no route ${method} ${path.slice(0, 200)}.`));
    try {
      return await ask();
    } catch (error) {
      context.log.error({ err: error }, "a request failed");
      return failed(new KhalaError("internal", "Internal error: the worker's log has the details."));
    }
  }

  async function serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { status, type, body } = await answer(request);
    // The rest of the request is not read.
    if (status === 404) response.setHeader("Connection", "close");
    response.writeHead(status, { "Content-Type": type, "Content-Length": Buffer.byteLength(body) }).end(body);
  }

  const server = createServer(
    {
      headersTimeout: requestMs,
      requestTimeout: requestMs,
      connectionsCheckingInterval: Math.ceil(requestMs / 2),
      maxHeaderSize: MAX_HEADER_BYTES,
    },
    (request, response) => void serve(request, response),
  );
  server.maxConnections = MAX_CONNECTIONS;
  server.setTimeout(IDLE_MS);
  try {
    server.listen({ host, port });
    await once(server, "listening");
  } catch (error) {
    throw listenError(error, options);
  }
  // Such as too many open files. The agents continue without it.
  server.on("error", (error) =>
    context.log.warn({ err: error.message }, "a connection could not be accepted"),
  );
  return {
    url: httpUrl(host, (server.address() as AddressInfo).port),
    async stop() {
      const closed = once(server, "close");
      server.close();
      // Only probes are connected, and they retry.
      server.closeAllConnections();
      await closed;
    },
  };
}

function failed(error: KhalaError): HealthAnswer {
  const body = JSON.stringify({ error });
  return { status: error.meaning.status, type: "application/json; charset=utf-8", body };
}
