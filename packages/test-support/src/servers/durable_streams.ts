import type { AddressInfo } from "node:net";
import { KhalaError } from "@khala/contracts";
import type { Audit } from "../../../server/src/access/audit.ts";
import type { Database } from "../../../server/src/database/database.ts";
import { openWakeups } from "../../../server/src/database/wakeups.ts";
import {
  type DurableStreams,
  openDurableStreams,
  STREAM_WAKEUP,
} from "../../../server/src/durable_streams/store.ts";
import { durableStreamsRoutes } from "../../../server/src/gateway/adapters/durable_streams/routes.ts";
import { memoryRevocations } from "../../../server/src/gateway/auth/revocations.ts";
import { openHttp } from "../../../server/src/gateway/http/http.ts";
import { openLiveStreams } from "../../../server/src/gateway/http/live_streams.ts";
import { gatewayMetrics } from "../../../server/src/gateway/metrics.ts";
import { testContext } from "../kit/context.ts";
import { until } from "../kit/until.ts";
import { noAudit, testViewer } from "../kit/viewer.ts";

/** The long-poll timeout by default. The conformance suite waits for several, and appends 500 ms into one. */
export const LONG_POLL_MS = 3_000;

export interface StreamServerOptions {
  readonly wakeups?: boolean;
  readonly pollMs?: number;
  readonly sweepMs?: number;
  readonly longPollMs?: number;
  readonly maxLive?: number;
  readonly origins?: readonly string[];
  readonly audit?: Audit;
}

/** A server with only the streams' routes. A request comes from its `x-org`, `x-subject` and `x-scopes`, or from ada of acme. */
export interface StreamServer extends AsyncDisposable {
  /** The URL of the streams. */
  readonly url: string;
  /** Resolves when it listens to wakeups. */
  readonly listening: Promise<void>;
  /** Resolves once for each live read that began to wait. */
  waits(): Promise<void>;
}

/** Serves the streams of a database on a free port. */
export async function serveStreams(
  database: Database,
  options: StreamServerOptions = {},
): Promise<StreamServer> {
  const {
    wakeups: enabled = true,
    pollMs = 500,
    sweepMs = 30_000,
    origins = [],
    audit = noAudit,
    maxLive,
    ...limits
  } = options;
  const context = await testContext();
  const { promise: listening, resolve: heard } = Promise.withResolvers<void>();
  const wakeups = openWakeups(database, context, { enabled });
  const streams = openDurableStreams(database, context, { wakeups, pollMs, sweepMs });
  wakeups.on(STREAM_WAKEUP, (id) => streams.onWakeup(id));
  wakeups.onListening(() => {
    heard();
    streams.recheck();
  });
  wakeups.start();
  const http = openHttp(context, {
    verifier: { verify: () => Promise.reject(new KhalaError("invalid_token", "Tokens are not read here.")) },
    audit,
    recognise: ({ headers }) =>
      testViewer({
        org: String(headers["x-org"] ?? "acme"),
        subject: String(headers["x-subject"] ?? "ada"),
        scopes: [String(headers["x-scopes"] ?? "chat")],
      }),
    metrics: gatewayMetrics(context.telemetry.meter),
    maxBodyBytes: 1 << 20,
    readsPerOrg: 5,
    origins,
  });
  const turnstile = observeWaits(streams);
  durableStreamsRoutes(http, context, {
    streams: turnstile.streams,
    revocations: memoryRevocations(context.clock),
    live: openLiveStreams(context, maxLive),
    longPollMs: LONG_POLL_MS,
    ...limits,
  });
  await http.app.listen({ host: "127.0.0.1", port: 0 });
  const { port } = http.app.server.address() as AddressInfo;
  let closed: Promise<void> | undefined;
  const close = async () => {
    let open = true;
    const ended = http.app.close().finally(() => {
      open = false;
    });
    // As the gateway does: once it is answered, a connection is kept for a request that will not come.
    await until("every request is answered", () => {
      http.app.server.closeIdleConnections();
      return !open;
    });
    await ended;
    await streams.stop();
    await wakeups.stop();
  };
  return {
    url: `http://127.0.0.1:${port}/streams`,
    listening,
    waits: turnstile.waits,
    [Symbol.asyncDispose]() {
      closed ??= close();
      return closed;
    },
  };
}

/** The same streams, with a callback when a watcher first waits. */
function observeWaits(inner: DurableStreams): { streams: DurableStreams; waits(): Promise<void> } {
  let begun = 0;
  let awaited = 0;
  let notify = () => {};
  const streams: DurableStreams = {
    ...inner,
    watch(id) {
      const watcher = inner.watch(id);
      let first = true;
      return {
        ...watcher,
        wait(ms, signal) {
          if (first) begun++;
          first = false;
          notify();
          return watcher.wait(ms, signal);
        },
      };
    },
  };
  return {
    streams,
    async waits() {
      awaited++;
      const wanted = awaited;
      while (begun < wanted) {
        const { promise, resolve } = Promise.withResolvers<void>();
        notify = resolve;
        await promise;
      }
    },
  };
}
