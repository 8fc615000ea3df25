import { AsyncLocalStorage } from "node:async_hooks";
import { KhalaError } from "@khala/contracts";
import { type Server, WebStandardStreamableHTTPServerTransport } from "@modelcontextprotocol/server";
import { isSameSubject, type Viewer } from "../../access/viewer.ts";
import type { Context } from "../../kit/context.ts";
import type { ConcurrencyQuota } from "../../kit/quota.ts";
import { type Revocations, whenRevoked } from "../auth/revocations.ts";
import type { McpCaller } from "./caller.ts";
import type { McpClient } from "./mcp_server.ts";
import type { WatchOptions } from "./watch.ts";
import { Watches } from "./watches.ts";

export interface SessionsOptions {
  readonly revocations: Pick<Revocations, "isRevoked" | "onRevoked">;
  readonly watching: WatchOptions;
  readonly newServer: (client: McpClient) => Server;
  readonly idleMs?: number;
  /** How many an org may have. */
  readonly places: ConcurrencyQuota;
}

/** Sessions of clients of the protocol up to 2025-11-25, in the memory of this server. */
export interface Sessions {
  /** Opens a session; throws limit_exceeded when the org has too many. */
  open(caller: McpCaller): Promise<Session>;
  /** The session of this id, for its own subject; not_found for any other. */
  find(id: string, caller: McpCaller): Session;
  readonly size: number;
  close(): Promise<void>;
}

/** A session does not begin again by itself: its client opens another one. */
const IDLE_MS = 600_000;

/** Opens the sessions. */
export function openSessions(context: Context, options: SessionsOptions): Sessions {
  const { places } = options;
  const sessions = new Map<string, Session>();
  return {
    get size() {
      return sessions.size;
    },
    async open(caller) {
      const release = places.acquire(caller.viewer.org);
      const session = new Session(context, options, caller, () => {
        sessions.delete(session.id);
        release();
      });
      try {
        await session.connect();
      } catch (error) {
        await session.close();
        throw error;
      }
      if (!session.closed) sessions.set(session.id, session);
      return session;
    },
    find(id, caller) {
      const session = sessions.get(id);
      if (session?.isOf(caller.viewer)) return session;
      throw sessionEnded();
    },
    close: async () => void (await Promise.all([...sessions.values()].map((session) => session.close()))),
  };
}

/** One client's session: it ends when the client ends it, is idle, or its token is revoked. */
export class Session {
  readonly id: string;
  readonly #context: Context;
  readonly #options: SessionsOptions;
  readonly #onClosed: () => void;
  readonly #transport: WebStandardStreamableHTTPServerTransport;
  readonly #server: Server;
  readonly #watches: Watches;
  /** The newest one. */
  #caller: McpCaller;
  /** That of the request that is being served: another one, with other scopes, may be served at the same time. */
  readonly #serving = new AsyncLocalStorage<McpCaller>();
  readonly #over = Promise.withResolvers<never>();
  #unsubscribe = () => {};
  #cancelIdle = () => {};
  #requests = 0;
  closed = false;

  constructor(context: Context, options: SessionsOptions, caller: McpCaller, onClosed: () => void) {
    this.id = context.newId();
    this.#context = context;
    this.#options = options;
    this.#onClosed = onClosed;
    this.#caller = caller;
    // Nobody may be waiting when it ends.
    this.#over.promise.catch(() => {});
    this.#watches = new Watches(context, options.watching, (uri) => {
      this.#server
        .sendResourceUpdated({ uri })
        .catch((error) => context.log.debug({ err: error }, "an MCP notification was not sent"));
    });
    this.#server = options.newServer({
      caller: () => this.#serving.getStore() ?? this.#caller,
      watches: this.#watches,
    });
    this.#transport = new WebStandardStreamableHTTPServerTransport({
      sessionIdGenerator: () => this.id,
      enableJsonResponse: true,
    });
  }

  async connect(): Promise<void> {
    this.#server.onclose = () => this.#ended();
    await this.#server.connect(this.#transport);
    this.#use(this.#caller);
    this.#awaitIdle();
  }

  isOf(viewer: Viewer): boolean {
    return isSameSubject(this.#caller.viewer, viewer);
  }

  /** Serves a request of the session's client; `done` resolves when the response has ended. */
  async handle(
    request: Request,
    body: unknown,
    caller: McpCaller,
  ): Promise<{ response: Response; done: () => void }> {
    this.#use(caller);
    this.#cancelIdle();
    this.#requests++;
    let held = true;
    const done = () => {
      if (!held) return;
      held = false;
      if (--this.#requests === 0) this.#awaitIdle();
    };
    try {
      const handled = this.#serving.run(caller, () =>
        this.#transport.handleRequest(request, { parsedBody: body }),
      );
      // The SDK never answers a request whose session ends, except the one that ends it.
      const response = await (request.method === "DELETE"
        ? handled
        : Promise.race([handled, this.#over.promise]));
      return { response, done };
    } catch (error) {
      done();
      throw error;
    }
  }

  close(): Promise<void> {
    return this.#server.close();
  }

  /** The session lives as long as its newest token, and watches what that one allows. */
  #use(caller: McpCaller): void {
    this.#unsubscribe();
    if (caller.viewer !== this.#caller.viewer) this.#watches.viewerChanged(caller.viewer);
    this.#caller = caller;
    this.#unsubscribe = whenRevoked(this.#options.revocations, caller.viewer, () => void this.close());
  }

  #awaitIdle(): void {
    if (this.closed) return;
    this.#cancelIdle = this.#context.clock.after(this.#options.idleMs ?? IDLE_MS, () => void this.close());
  }

  #ended(): void {
    if (this.closed) return;
    this.closed = true;
    this.#unsubscribe();
    this.#cancelIdle();
    this.#watches.close();
    this.#over.reject(sessionEnded());
    this.#onClosed();
  }
}

function sessionEnded(): KhalaError {
  return new KhalaError("not_found", "The MCP session has ended. Initialize a new one.");
}
