import type { EventJson } from "@khala/contracts/conversation/v1";
import type { FastifyReply } from "fastify";
import type { Audit } from "../../access/audit.ts";
import type { Viewer } from "../../access/viewer.ts";
import type { ConversationPlane } from "../../conversations/plane.ts";
import type { Context } from "../../kit/context.ts";
import { type Revocations, whenRevoked } from "../auth/revocations.ts";
import type { LiveStreams } from "../http/live_streams.ts";
import { clientError } from "../sockets/connection.ts";
import { EventStream } from "./ai_event_stream.ts";
import { type FollowedRun, followRun } from "./ai_run.ts";

/** Dependencies of the HTTP adapters. */
export interface AdapterOptions {
  readonly conversations: ConversationPlane;
  readonly audit: Audit;
  readonly revocations: Revocations;
  readonly live: LiveStreams;
  /** Aborts when the server shuts down: streams are cut, and clients resume them elsewhere. */
  readonly signal: AbortSignal;
  /** The largest body of a request, which may have files in it. */
  readonly bodyLimit: number;
}

/** Translates the events of a run to another protocol. */
interface Translator {
  event(event: EventJson): readonly unknown[];
  fail(message: string, code: string): readonly unknown[];
}

export interface Answer {
  readonly viewer: Viewer;
  readonly run: FollowedRun;
  /** The request joins a run that another one started: the stream ends with the token. */
  readonly joins?: true;
  readonly translator: Translator;
  /** Sent before the events of the run. */
  readonly first: readonly unknown[];
  /** Written at the end. */
  readonly last?: string;
  readonly headers?: Readonly<Record<string, string>>;
  /** The server's root, relative to the request's address: a proxy may have moved it. */
  readonly root: string;
}

/**
 * Streams the events of a run until it ends. A client that leaves does not stop the run. The stream of the request that
 * started the run may outlive its token: a request that was accepted is answered.
 */
export async function respondWithRun(
  reply: FastifyReply,
  context: Context,
  { conversations, revocations, signal }: AdapterOptions,
  { viewer, run, joins, translator, first, last, headers: given = {}, root }: Answer,
): Promise<void> {
  // For clients that abort a stream to stop its run: see stopOnAbort of the client.
  const stop = `${root}chat/${encodeURIComponent(run.convId)}/stop?run_id=${encodeURIComponent(run.runId)}`;
  const headers = { ...given, "khala-stop": stop };
  const expiry = joins && { expiresAt: viewer.expiresAt };
  const events = new EventStream(reply, context, { headers, signal, ...expiry });
  const unsubscribe = whenRevoked(revocations, viewer, () => events.cut());
  if (events.signal.aborted) unsubscribe();
  else events.signal.addEventListener("abort", unsubscribe);
  try {
    await events.send(first);
    for await (const event of followRun(context, conversations, run, events.signal)) {
      if (event) await events.send(translator.event(event));
      else await events.comment();
    }
  } catch (error) {
    const { message, code } = clientError(error, context);
    // The run continues on another server: it has not failed.
    if (code === "shutting_down") return events.cut();
    await events.send(translator.fail(message, code));
  }
  events.end(last);
}
