import { inexactInteger, inexactIntegerError, KhalaError } from "@khala/contracts";
import type { Audit } from "../../access/audit.ts";
import type { ConversationPlane } from "../../conversations/plane.ts";
import type { Context } from "../../kit/context.ts";
import { wireFrame } from "../../kit/wire_frame.ts";
import { readConvId } from "../http/conversation_request.ts";
import {
  type ClientSocket,
  type Connection,
  clientError,
  type SocketEndpoint,
} from "../sockets/connection.ts";
import { type AiChunk, AiChunks } from "./ai_chunks.ts";
import { readAiContinuation } from "./ai_continuation.ts";
import { readAiRequest } from "./ai_routes.ts";
import { type FollowedRun, followRun, joinRun, startRun } from "./ai_run.ts";
import { continueRun } from "./continued_run.ts";

export interface AiSocketOptions {
  readonly conversations: ConversationPlane;
  readonly audit: Audit;
}

/** A client's message, not validated yet. */
interface Frame {
  readonly type?: unknown;
  readonly requestId?: unknown;
  readonly id?: unknown;
  readonly messages?: unknown;
  readonly trigger?: unknown;
  readonly lastSequence?: unknown;
  readonly body?: unknown;
  readonly metadata?: unknown;
}

/** A `send` or `resume` that is being answered. */
interface Request {
  readonly id: string;
  /** The conversation, as the client named it. */
  readonly convId: unknown;
  readonly leaving: AbortController;
  /** The client wants the run to stop. */
  stop: boolean;
  sequence: number;
  /** Resolves when it is answered, and its run is stopped if the client wants that. */
  answered: Promise<void>;
}

const MAX_ID = 255;
/** How many answers one socket may stream at the same time. */
const MAX_REQUESTS = 32;

/**
 * `/ai/ws?token=[&policy=]` for `WebSocketChatTransport` of the AI SDK: many chats on one socket. A closed socket leaves
 * its runs alone; `stop()` ends the run, and `useChat` calls it when its component goes, unless it is given a `chat`.
 */
export function aiEndpoint(context: Context, options: AiSocketOptions): SocketEndpoint {
  return {
    path: "/ai/ws",
    kind: "ai",
    action: "conversation.write",
    open: ({ searchParams }) => {
      const policy = searchParams.get("policy") ?? undefined;
      return (connection) => new AiSocket(connection, context, { ...options, policy });
    },
  };
}

/** A socket of WebSocketChatTransport. Each answer streams independently, and waits for the outbox like the others. */
class AiSocket implements ClientSocket {
  readonly #connection: Connection;
  readonly #context: Context;
  readonly #options: AiSocketOptions & { readonly policy: string | undefined };
  readonly #requests = new Map<string, Request>();
  #waiting: (() => void)[] = [];

  constructor(
    connection: Connection,
    context: Context,
    options: AiSocketOptions & { readonly policy: string | undefined },
  ) {
    this.#connection = connection;
    this.#context = context;
    this.#options = options;
  }

  receive(data: Buffer, binary: boolean): void {
    let frame: Frame | null = null;
    const text = binary ? "" : data.toString();
    try {
      frame = JSON.parse(text);
    } catch {
      // Answered below like everything else that is not understood.
    }
    const id = frame?.requestId;
    const type = frame?.type;
    if (typeof id !== "string" || id === "" || id.length > MAX_ID || !isKnown(type)) {
      const message = "Send the frames of WebSocketChatTransport: send, resume or abort, with a requestId.";
      return this.#connection.end(new KhalaError("invalid_request", message));
    }
    if (type === "abort") return this.#abort(id);
    if (this.#requests.has(id) || this.#requests.size >= MAX_REQUESTS) {
      // Not as an answer to that id: the first request with it may still stream.
      const message = `A socket may have at most ${MAX_REQUESTS} active requests. Wait for an answer, or open another socket.`;
      return this.#connection.end(new KhalaError("limit_exceeded", message));
    }
    const request: Request = {
      id,
      convId: frame!.id,
      leaving: new AbortController(),
      stop: false,
      sequence: 0,
      answered: Promise.resolve(),
    };
    this.#requests.set(id, request);
    request.answered = this.#answer(request, frame!, inexactInteger(text));
  }

  // A token that does not allow chats is refused before it is used.
  viewerChanged(): void {}

  onWritable(): void {
    for (const resume of this.#waiting.splice(0)) resume();
  }

  heartbeat(): void {
    this.#connection.ping();
  }

  // The close code has the reason. An error frame would make the client drop an answer that it can resume.
  sendError(): void {}

  close(): void {
    for (const { leaving } of this.#requests.values()) leaving.abort();
    this.#requests.clear();
    this.onWritable();
  }

  /** None: its answers are short-lived. */
  channels(): [] {
    return [];
  }

  /** The client's `stop()`: unlike a closed socket, it means the run. */
  #abort(id: string): void {
    const request = this.#requests.get(id);
    if (!request) return;
    request.stop = true;
    request.leaving.abort();
    this.onWritable();
  }

  /** Answers one request to its end. Never rejects. */
  async #answer(request: Request, frame: Frame, rounded: string | undefined): Promise<void> {
    let run: FollowedRun | undefined;
    try {
      if (rounded !== undefined) throw inexactIntegerError(rounded);
      if (frame.type === "resume") run = await this.#resume(request, frame);
      else run = await this.#send(request, frame);
      if (run) await this.#frame(request, { type: "end" });
    } catch (error) {
      const { code, message } = clientError(error, this.#context);
      this.#connection.refused(code);
      await this.#frame(request, { type: "error", errorText: message });
    } finally {
      this.#requests.delete(request.id);
    }
  }

  async #send(request: Request, frame: Frame): Promise<FollowedRun> {
    const { conversations, policy } = this.#options;
    const { body, metadata } = frame;
    const params = { ...(metadata !== undefined && { metadata }), ...Object(body) };
    const { viewer } = this.#connection;
    const by = { viewer, address: this.#connection.remote };
    const continuation = readAiContinuation(frame);
    await this.#earlierStops(request);
    const run = continuation
      ? await continueRun(this.#options, by, continuation)
      : await startRun(this.#context, conversations, viewer, readAiRequest(frame, params, policy));
    await this.#frame(request, { type: "start" });
    const chunks = new AiChunks(run.runId, continuation?.known);
    await this.#follow(request, run, chunks, run.waits ? chunks.wait() : []);
    return run;
  }

  /** The stops requested before in the conversation: until they are stored, it is busy. */
  async #earlierStops({ id, convId }: Request): Promise<void> {
    const stops: Promise<void>[] = [];
    for (const other of this.#requests.values()) {
      if (other.id === id) break;
      if (other.stop && other.convId === convId) stops.push(other.answered);
    }
    await Promise.all(stops);
  }

  async #resume(request: Request, frame: Frame): Promise<FollowedRun | undefined> {
    if (frame.lastSequence !== undefined) {
      const message =
        "lastSequence is not supported: an answer is always resumed from its beginning. Leave lastSequence out.";
      throw new KhalaError("invalid_request", message, { field: "lastSequence" });
    }
    const caller = this.#connection.viewer;
    const run = await joinRun(this.#options.conversations, caller, readConvId(frame.id, "id"));
    if (!run) {
      await this.#frame(request, { type: "no-active" });
      return undefined;
    }
    await this.#frame(request, { type: "start" });
    const chunks = new AiChunks(run.runId);
    await this.#follow(request, run, chunks, chunks.replay(run.messages));
    return run;
  }

  async #follow(
    request: Request,
    run: FollowedRun,
    chunks: AiChunks,
    replayed: readonly AiChunk[] = [],
  ): Promise<void> {
    const { conversations } = this.#options;
    const { signal } = request.leaving;
    try {
      await this.#chunks(request, replayed);
      const events = followRun(this.#context, conversations, run, signal);
      for await (const event of events) if (event) await this.#chunks(request, chunks.event(event));
    } catch (error) {
      await this.#chunks(request, chunks.fail(clientError(error, this.#context).message));
    }
    if (request.stop) await conversations.stopRun(run.caller, run.convId, run.runId);
  }

  async #chunks(request: Request, chunks: readonly AiChunk[]): Promise<void> {
    for (const chunk of chunks)
      await this.#frame(request, { type: "chunk", sequence: request.sequence++, chunk });
  }

  /** Sends a frame once the outbox accepts it; the connection closes a consumer that is too slow. */
  async #frame({ id, leaving }: Request, body: Readonly<Record<string, unknown>>): Promise<void> {
    const frame = wireFrame(JSON.stringify({ requestId: id, ...body }));
    while (!leaving.signal.aborted && !this.#connection.outbox.offer(frame)) {
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
    }
  }
}

function isKnown(type: unknown): type is "send" | "resume" | "abort" {
  return type === "send" || type === "resume" || type === "abort";
}
