import type { IncomingMessage, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { KhalaError } from "@khala/contracts";
import type { Clock } from "../../kit/clock.ts";
import { visitInRotation } from "../../kit/rotation.ts";
import { endWithError } from "../sockets/handshake.ts";

/** How long a body may stop arriving. */
const IDLE_MS = 10_000;
const ROUND = { everyMs: 1_000, batchSize: 256 };

/** Bodies that are arriving. */
export interface ArrivingBodies {
  /** Watches a request until its body is complete, even if it is answered before. */
  watch(request: IncomingMessage, response: ServerResponse): void;
  stop(): void;
}

interface Upload {
  readonly request: IncomingMessage;
  /** A request that is given up while it is read loses its `socket`. */
  readonly socket: Socket;
  readonly response: ServerResponse;
  bytes: number;
  since: number;
}

/** Cuts off bodies that stop arriving, with 408. One that arrives slowly but steadily is left alone. */
export function watchBodies(clock: Clock): ArrivingBodies {
  const uploads = new Set<Upload>();
  const stop = visitInRotation(clock, uploads, ROUND, (upload, now) => {
    const { request, socket, response } = upload;
    const { bytesRead } = socket;
    if (request.complete || request.destroyed || socket.destroyed) uploads.delete(upload);
    else if (bytesRead !== upload.bytes) Object.assign(upload, { bytes: bytesRead, since: now });
    else if (now - upload.since >= IDLE_MS) {
      uploads.delete(upload);
      if (response.headersSent) socket.destroy();
      else endWithError(socket, late());
    }
  });
  return {
    watch(request, response) {
      const { "content-length": length, "transfer-encoding": encoding } = request.headers;
      if (encoding === undefined && (length === undefined || length === "0")) return;
      // A request that this process makes to itself has no connection, and its body is there.
      if (request.complete !== false) return;
      const { socket } = request;
      const upload = { request, socket, response, bytes: socket.bytesRead, since: clock.now() };
      uploads.add(upload);
      response.once("close", () => {
        // Answered early, such as with 401: the rest of the body still holds the connection.
        if (request.complete || socket.destroyed) uploads.delete(upload);
      });
    },
    stop,
  };
}

function late(): KhalaError {
  const message = `The body stopped arriving for ${IDLE_MS / 1_000} s. Send the request again without pauses.`;
  return new KhalaError("idle_timeout", message);
}
