import type { Context } from "../kit/context.ts";
import { runLoop, type Service, Wake } from "../kit/service.ts";
import type { Database, Statement } from "./database.ts";

/** Wakeups between processes. They may be lost at any time: every listener polls as well. */
export interface Wakeups extends Service {
  /** Calls `handler` with the rest of each name that another process sent and that starts with `prefix`. */
  on(prefix: string, handler: (rest: string) => void): void;
  /** Calls `handler` whenever listening starts: the first time, and after each reconnect, when wakeups may be lost. */
  onListening(handler: () => void): void;
  /** Starts listening. */
  start(): void;
  /**
   * Tells the other processes that `name` has changed. Calls close together are sent as one NOTIFY, at most one every
   * `waitMs`. A caller with many changes sets a longer wait, because each NOTIFY has a cost.
   */
  send(name: string, waitMs?: number): void;
  /**
   * The same as part of the caller's transaction, which saves a round trip: the statement to add to it. Undefined when a
   * wakeup was sent less than `afterMs` ago: then the caller uses `send` after its commit.
   */
  within(name: string, afterMs?: number): Statement | undefined;
}

export interface WakeupOptions {
  /** False disables sending and listening: all servers poll. */
  readonly enabled: boolean;
  /** NOTIFY takes a lock over the whole database at commit: one at a time, and at most one in this many milliseconds. */
  readonly everyMs?: number;
}

const CHANNEL = "khala_wakeups";
const MAX_PAYLOAD = 7_000;
/** After this many times `everyMs` without a wakeup, traffic counts as quiet. */
const QUIET = 10;

/** Opens wakeups over LISTEN/NOTIFY. It listens on a connection of its own. */
export function openWakeups(database: Database, context: Context, options: WakeupOptions): Wakeups {
  const self = context.newId();
  const handlers: { readonly prefix: string; readonly handle: (rest: string) => void }[] = [];
  const listeners: (() => void)[] = [];
  const waiting = new Set<string>();
  let lastSent = 0;
  /** The shortest wait among the pending names. */
  let patience = Number.POSITIVE_INFINITY;
  let timer: (() => void) | undefined;
  let stopped = false;
  let sending: Promise<void> | undefined;

  const everyMs = options.everyMs ?? 1;
  // If the clock jumps back, wakeups must not be delayed by the jump.
  const dueIn = (waitMs: number) => Math.min(waitMs, lastSent + waitMs - context.clock.now());

  function takePayload(): string {
    let payload = self;
    for (const name of waiting) {
      if (payload.length + name.length > MAX_PAYLOAD) break;
      payload += `\n${name}`;
      waiting.delete(name);
    }
    patience = waiting.size > 0 ? everyMs : Number.POSITIVE_INFINITY;
    return payload;
  }

  function flush(): void {
    timer = undefined;
    lastSent = context.clock.now();
    // No need to wait for the disk: the change itself is committed, and polling finds what a lost wakeup announced.
    const text = "SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, $2)";
    sending = database
      .query({ name: "wakeup", text, values: [CHANNEL, takePayload()] })
      .catch((error) =>
        context.log.debug({ err: error.message }, "a wakeup was not sent; the other servers poll"),
      )
      .then(() => {
        sending = undefined;
        if (waiting.size > 0) schedule();
      });
  }

  function schedule(): void {
    timer?.();
    timer = undefined;
    // One at a time: under load, names that arrive during a NOTIFY go into the next.
    if (sending || stopped) return;
    const wait = dueIn(patience);
    if (wait <= 0) flush();
    else timer = context.clock.after(wait, flush);
  }

  function dispatch(name: string): void {
    for (const { prefix, handle } of handlers) if (name.startsWith(prefix)) handle(name.slice(prefix.length));
  }

  const listen = () =>
    runLoop(context, "wakeups", {
      wake: new Wake(),
      idleMs: 0,
      async step(signal) {
        const client = await database.connect();
        const { promise: over, resolve: end } = Promise.withResolvers<Error | undefined>();
        const stop = () => end(undefined);
        try {
          client.on("error", end);
          client.on("end", stop);
          client.on("notification", ({ payload }) => {
            const [sender, ...names] = payload?.split("\n") ?? [];
            // Its own changes need no wakeup.
            if (sender !== self) for (const name of names) dispatch(name);
          });
          signal.addEventListener("abort", stop, { once: true });
          // It may have been stopped while connecting.
          if (signal.aborted) return false;
          await client.query(`LISTEN ${CHANNEL}`);
          for (const listening of listeners) listening();
          const error = await over;
          if (error) throw error;
          if (!signal.aborted) throw new Error("the LISTEN connection ended");
          return false;
        } finally {
          signal.removeEventListener("abort", stop);
          // Ending a broken connection fails; there is nothing left to close.
          await client.end().catch(() => {});
        }
      },
    });

  let loop: Service | undefined;
  return {
    on(prefix, handle) {
      handlers.push({ prefix, handle });
    },
    onListening(listening) {
      listeners.push(listening);
    },
    start() {
      if (options.enabled) loop ??= listen();
    },
    send(name, waitMs = everyMs) {
      if (!options.enabled) return;
      waiting.add(name);
      const sooner = waitMs < patience;
      patience = Math.min(patience, waitMs);
      if (sooner) schedule();
    },
    within(name, afterMs = QUIET * everyMs) {
      // NOTIFY holds a lock until the commit ends. Under load a separate NOTIFY beside the commits is cheaper.
      if (!options.enabled || dueIn(afterMs) > 0) return undefined;
      lastSent = context.clock.now();
      // Only its own name: if the caller rolls back, no other wakeup may be lost with it.
      const values = [CHANNEL, `${self}\n${name}`];
      return { name: "hint_within", text: "SELECT pg_notify($1, $2)", values };
    },
    async stop() {
      stopped = true;
      timer?.();
      await loop?.stop();
      await sending;
    },
  };
}
