import type { EventJson } from "@khala/contracts/conversation/v1";
import type { FastifyReply } from "fastify";
import type { ConversationPlane } from "../../conversations/plane.ts";
import type { Context } from "../../kit/context.ts";
import type { Viewer } from "../auth/claims.ts";
import { clientError } from "../sockets/connection.ts";
import { EventStream } from "./ai_event_stream.ts";
import { type FollowedRun, followRun } from "./ai_run.ts";

/** What the adapters over HTTP are given. */
export interface AdapterOptions {
  readonly conversations: ConversationPlane;
  /** Aborts when the server shuts down: streams are cut, and clients resume them elsewhere. */
  readonly signal: AbortSignal;
}

/** A run in somebody else's words. */
interface Words {
  event(event: EventJson): readonly unknown[];
  fail(message: string, code: string): readonly unknown[];
}

export interface Answer {
  readonly viewer: Viewer;
  readonly run: FollowedRun;
  readonly words: Words;
  /** What comes before the events of the run. */
  readonly first: readonly unknown[];
  /** What is written at the end. */
  readonly last?: string;
  readonly headers?: Readonly<Record<string, string>>;
}

/** Answers with the events of a run until it is over. Who leaves leaves the run alone. */
export async function respondWithRun(
  reply: FastifyReply,
  context: Context,
  { conversations, signal }: AdapterOptions,
  { viewer, run, words, first, last, headers = {} }: Answer,
): Promise<void> {
  const events = new EventStream(reply, context, { headers, signal, expiresAt: viewer.expiresAt });
  try {
    await events.send(first);
    for await (const event of followRun(context, conversations, run, events.signal)) {
      if (event) await events.send(words.event(event));
      else await events.comment();
    }
  } catch (error) {
    const { message, code } = clientError(error, context);
    // The run goes on elsewhere, or is taken over: it has not failed.
    if (code === "shutting_down") return events.cut();
    await events.send(words.fail(message, code));
  }
  events.end(last);
}
