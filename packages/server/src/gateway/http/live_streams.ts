import { KhalaError } from "@khala/contracts";
import type { FastifyReply } from "fastify";
import type { Viewer } from "../../access/viewer.ts";
import type { Context } from "../../kit/context.ts";
import { openConcurrencyQuota } from "../../kit/quota.ts";

/** Requests over HTTP that stay open: event streams, long-polls, and calls of MCP, which may wait. */
export interface LiveStreams {
  /** Counts the request until its connection or answer ends; throws when the org, or the server, has too many. */
  enter(viewer: Viewer, reply: FastifyReply): void;
}

const MAX_STREAMS = 10_000;

/** Opens the count of live streams. Beyond `max` they are refused, and one org alone cannot take every place. */
export function openLiveStreams(context: Context, max = MAX_STREAMS): LiveStreams {
  let live = 0;
  const ofOrg = openConcurrencyQuota(context, {
    name: "live_streams",
    of: "live streams over HTTP on this server",
    // Nearly all of them, so that an org alone notices nothing, but never all.
    limit: Math.max(1, Math.floor(max * 0.9)),
  });
  return {
    enter({ org }, { raw }) {
      if (live >= max)
        throw new KhalaError(
          "overloaded",
          "Too many live streams are open on this server. Try again in a moment.",
          { retry_after_ms: 1_000 },
        );
      // The client may have left already; `close` is not emitted twice.
      if (raw.closed) return;
      const leave = ofOrg.acquire(org);
      live++;
      raw.once("close", () => {
        live--;
        leave();
      });
    },
  };
}
