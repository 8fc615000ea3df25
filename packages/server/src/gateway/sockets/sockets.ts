import type { IncomingMessage } from "node:http";
import type { Duplex } from "node:stream";
import { type ErrorCode, KhalaError } from "@khala/contracts";
import type { SocketJson } from "@khala/contracts/ops/v1";
import { WebSocketServer } from "ws";
import { requireScope } from "../../access/access.ts";
import type { Viewer } from "../../access/viewer.ts";
import type { Context } from "../../kit/context.ts";
import { openConcurrencyQuota } from "../../kit/quota.ts";
import { visitInRotation } from "../../kit/rotation.ts";
import { bearerToken, socketToken } from "../auth/bearer.ts";
import { requireSameSubject } from "../auth/claims.ts";
import { originAllowed } from "../auth/origin.ts";
import { type Revocations, tokenRevoked } from "../auth/revocations.ts";
import type { Verifier } from "../auth/verifier.ts";
import { closeLabel, type GatewayMetrics, isDenial } from "../metrics.ts";
import { type ClientSocket, Connection, type ConnectionLimits, type SocketEndpoint } from "./connection.ts";
import { addressOf, refuseHandshake } from "./handshake.ts";
import { openTraffic, type Traffic } from "./traffic.ts";

/** Sockets of a server that stops return this far apart, and all of them within the maximum. */
const RETURN_MS = 1;
const MAX_RETURN_MS = 30_000;

export interface SocketsOptions {
  readonly verifier: Verifier;
  readonly revocations: Revocations;
  readonly metrics: GatewayMetrics;
  /** Counters for operators. */
  readonly traffic?: Traffic;
  /** The paths at which sockets are opened, with their protocols. */
  readonly endpoints: readonly SocketEndpoint[];
  readonly origins: readonly string[];
  /** A connection has authenticated, and becomes a socket. */
  readonly onAdmitted?: (stream: Duplex) => void;
  readonly limits: ConnectionLimits & {
    sockets: number;
    socketsPerSubject: number;
    socketsPerOrg: number;
    frameBytes: number;
  };
}

/** All client sockets of this server. */
export interface Sockets {
  /** The sockets of an org, the newest first. */
  list(org: string, limit: number): SocketJson[];
  /** Handles an HTTP upgrade: opens a socket, or refuses with the reason. */
  upgrade(request: IncomingMessage, stream: Duplex, head: Buffer): void;
  /** Refuses new sockets, closes the open ones with 1012 and waits until they are closed; terminates the rest after `timeoutMs`. */
  drain(timeoutMs: number): Promise<void>;
}

/** A handshake that was accepted. */
interface Admitted {
  readonly viewer: Viewer;
  readonly endpoint: SocketEndpoint;
  readonly serve: (connection: Connection) => ClientSocket;
}

/** How sockets are checked: heartbeats to all of them at once would delay other frames. */
const ROUND = { everyMs: 1_000, batchSize: 32 };

/** Opens the sockets of the server. One timer serves all of them. */
export function openSockets(context: Context, options: SocketsOptions): Sockets {
  const { metrics, traffic = openTraffic(context.clock), limits, verifier } = options;
  const open = new Set<Connection>();
  const bySubject = new Map<string, number>();
  const orgSockets = openConcurrencyQuota(context, {
    name: "sockets",
    of: "sockets on this server",
    limit: limits.socketsPerOrg,
  });
  const server = new WebSocketServer({
    noServer: true,
    clientTracking: false,
    perMessageDeflate: false,
    autoPong: false,
    maxPayload: limits.frameBytes,
    handleProtocols: (offered) => (offered.has("phoenix") ? "phoenix" : false),
  });
  let draining = false;
  const stopChecking = visitInRotation(context.clock, open, ROUND, (socket, now) => socket.tick(now));

  const unsubscribe = options.revocations.onRevoked(() => {
    for (const socket of open) {
      if (options.revocations.isRevoked(socket.viewer)) socket.end(tokenRevoked());
    }
  });

  async function admit(request: IncomingMessage): Promise<Admitted> {
    const url = addressOf(request);
    if (!url) throw new KhalaError("invalid_request", "The URL is not valid.");
    const endpoint = options.endpoints.find(({ path }) => path === url.pathname);
    if (!endpoint) {
      const paths = options.endpoints.map(({ path }) => path).join(" or ");
      throw new KhalaError("not_found", `There is no socket at this address. Connect to ${paths}.`);
    }
    const serve = endpoint.open(url);
    const origin = request.headers.origin;
    if (!originAllowed(origin, options.origins, request.headers.host ?? "")) {
      throw new KhalaError(
        "origin_not_allowed",
        "This origin may not open sockets. Add it to KHALA_ORIGINS.",
      );
    }
    requireCapacity();
    const { token } = socketToken({
      params: url.searchParams,
      protocols: request.headers["sec-websocket-protocol"],
    });
    const viewer = await verifier.verify(token ?? bearerToken(request.headers));
    // The clock skew allows a token that has just expired, but its socket would be closed at once, again and again.
    if (viewer.expiresAt <= context.clock.now())
      throw new KhalaError("token_expired", "The token expired. Connect with a fresh one.");
    if (endpoint.action) requireScope(viewer, endpoint.action);
    // Again, because other sockets may have opened while the token was verified.
    requireCapacity();
    if ((bySubject.get(subjectKey(viewer)) ?? 0) >= limits.socketsPerSubject) {
      throw new KhalaError(
        "limit_exceeded",
        `One subject may have at most ${limits.socketsPerSubject} sockets on a server. Close one first.`,
      );
    }
    // The place is taken when the handshake is done: one that fails in between must not keep it.
    if (!orgSockets.hasRoom(viewer.org)) orgSockets.acquire(viewer.org);
    return { viewer, endpoint, serve };
  }

  function requireCapacity(): void {
    if (draining)
      throw new KhalaError("shutting_down", "This server is shutting down. Connect to another one.");
    if (open.size >= limits.sockets)
      throw new KhalaError(
        "limit_exceeded",
        "This server has reached its limit of sockets. Connect to another one, or raise KHALA_MAX_SOCKETS.",
      );
  }

  function count(viewer: Viewer, by: number): void {
    const key = subjectKey(viewer);
    const now = (bySubject.get(key) ?? 0) + by;
    if (now > 0) bySubject.set(key, now);
    else bySubject.delete(key);
  }

  async function accept(request: IncomingMessage, stream: Duplex, head: Buffer): Promise<void> {
    // The HTTP server no longer listens: without this, a client that resets the connection would end the process.
    const broken = (error: Error) => context.log.debug({ err: error.message }, "a handshake was cut");
    stream.on("error", broken);
    let admitted: Admitted;
    try {
      admitted = await admit(request);
    } catch (error) {
      traffic.refused(error instanceof KhalaError ? error.code : "internal");
      return refuseHandshake(stream, error, context, metrics);
    }
    stream.off("error", broken);
    options.onAdmitted?.(stream);
    const { viewer, endpoint, serve } = admitted;
    let release = () => {};
    const connectionOptions = {
      limits,
      kind: endpoint.kind,
      remote: request.socket.remoteAddress ?? "",
      written: traffic.written,
      async authenticate(current: Viewer, token: string) {
        const refreshed = await verifier.verify(token);
        requireSameSubject(current, refreshed);
        if (endpoint.action) requireScope(refreshed, endpoint.action);
        return refreshed;
      },
      onRefused(code: ErrorCode) {
        traffic.refused(code);
        if (isDenial(code)) metrics.denials.add(1, { code });
      },
      onClosed(closed: Connection, code: number, reason: string) {
        open.delete(closed);
        count(viewer, -1);
        release();
        metrics.closes.add(1, { code: closeLabel(code) });
        traffic.closed(viewer.org, { subject: viewer.subject, code, reason, kind: endpoint.kind });
      },
    };
    server.handleUpgrade(request, stream, head, (ws) => {
      open.add(new Connection(ws, stream, viewer, context, connectionOptions, serve));
      count(viewer, 1);
      release = orgSockets.acquireAnyway(viewer.org);
      traffic.opened();
      metrics.connects.add(1);
    });
  }

  metrics.sockets.addCallback((result) => result.observe(open.size));
  metrics.waitingBytes.addCallback((result) => {
    let bytes = 0;
    for (const socket of open) bytes += socket.outbox.waitingBytes;
    result.observe(bytes);
  });

  return {
    list(org, limit) {
      const own = [...open].filter(({ viewer }) => viewer.org === org);
      return own
        .slice(-limit)
        .reverse()
        .map((socket) => socket.describe());
    },
    upgrade(request, stream, head) {
      accept(request, stream, head).catch((error) => {
        context.log.error({ err: error }, "a handshake failed");
        stream.destroy();
      });
    },
    async drain(timeoutMs) {
      draining = true;
      unsubscribe();
      // Each socket gets a different time to reconnect, so that they do not reach the next server all at once.
      const apartMs = Math.min(RETURN_MS, MAX_RETURN_MS / open.size);
      for (const [i, socket] of [...open].entries())
        socket.end(
          new KhalaError("shutting_down", "This server is restarting. Reconnect; nothing is lost.", {
            retry_after_ms: Math.ceil(i * apartMs),
          }),
        );
      const deadline = context.clock.now() + timeoutMs;
      while (open.size > 0 && context.clock.now() < deadline) {
        await new Promise<void>((resolve) => context.clock.after(20, resolve));
      }
      for (const socket of open) socket.terminate();
      stopChecking();
      server.close();
    },
  };
}

function subjectKey({ org, subject }: Viewer): string {
  return JSON.stringify([org, subject]);
}
