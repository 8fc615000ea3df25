import type { Context } from "../kit/context.ts";
import { runLoop, type Service, Wake } from "../kit/service.ts";
import type { Database, Statement } from "./database.ts";

/** Wake-ups between processes. They may be lost at any time: whoever waits for one polls as well. */
export interface Wakeups extends Service {
  /** Calls `handler` for each name of another process that begins with `prefix`, with the rest of it. "" matches every name. */
  on(prefix: string, handler: (rest: string) => void): void;
  /** Calls `handler` whenever listening begins, at first and after every loss of the connection: wakeups may have been lost. */
  onListening(handler: () => void): void;
  /** Begins to listen. */
  start(): void;
  /**
   * Tells the other processes that something about `name` changed. Calls close together become one; `waitMs` is how long
   * after the last one this may wait, for who has so much to tell that each wakeup costs more than it hastens.
   */
  send(name: string, waitMs?: number): void;
  /**
   * The same as part of a transaction that changes something, which saves a round trip: the statement to add to it, or
   * undefined when a wakeup was sent less than `afterMs` ago, and `send` after the commit is what is due.
   */
  within(name: string, afterMs?: number): Statement | undefined;
}

export interface WakeupOptions {
  /** False sends and hears nothing: everybody polls. */
  readonly enabled: boolean;
  /** NOTIFY takes a lock over the whole database at commit: one at a time, and at most one in this many milliseconds. */
  readonly everyMs?: number;
}

const CHANNEL = "khala_wakeups";
const MAX_PAYLOAD = 7_000;
/** After how many times `everyMs` without a wakeup commits are taken not to follow each other. */
const QUIET = 10;

/** Opens wakeups over LISTEN/NOTIFY, on a connection of its own. */
export function openWakeups(database: Database, context: Context, options: WakeupOptions): Wakeups {
  const self = context.newId();
  const handlers: { readonly prefix: string; readonly handle: (rest: string) => void }[] = [];
  const listeners: (() => void)[] = [];
  const waiting = new Set<string>();
  let lastSent = 0;
  /** The shortest wait that somebody who waits has asked for. */
  let patience = Number.POSITIVE_INFINITY;
  let timer: (() => void) | undefined;
  let stopped = false;
  let sending: Promise<void> | undefined;

  const everyMs = options.everyMs ?? 1;
  // A clock that jumped back must not hold wakeups for as long as it jumped.
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
    // A wakeup is worth no wait for the disk: what it tells of is committed, and a lost one is polled for.
    const text = "SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, $2)";
    sending = database
      .query({ name: "wakeup", text, values: [CHANNEL, takePayload()] })
      .catch((error) => context.log.debug({ err: error.message }, "a wakeup was not sent; the others poll"))
      .then(() => {
        sending = undefined;
        if (waiting.size > 0) schedule();
      });
  }

  function schedule(): void {
    timer?.();
    timer = undefined;
    // A busy database answers late: what comes meanwhile goes with the next one, so that wakeups never add to its load.
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
            // What we did ourselves we know already.
            if (sender !== self) for (const name of names) dispatch(name);
          });
          signal.addEventListener("abort", stop, { once: true });
          // It may have been stopped while the connection was made.
          if (signal.aborted) return false;
          await client.query(`LISTEN ${CHANNEL}`);
          for (const listening of listeners) listening();
          const error = await over;
          if (error) throw error;
          if (!signal.aborted) throw new Error("the LISTEN connection ended");
          return false;
        } finally {
          signal.removeEventListener("abort", stop);
          // Ending a connection that is already broken fails, and has nothing left to end.
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
      // While commits follow each other closely, each waits for the one before: then a wakeup of its own, beside them, is better.
      if (!options.enabled || dueIn(afterMs) > 0) return undefined;
      waiting.add(name);
      timer?.();
      timer = undefined;
      lastSent = context.clock.now();
      const statement = {
        name: "hint_within",
        text: "SELECT pg_notify($1, $2)",
        values: [CHANNEL, takePayload()],
      };
      if (waiting.size > 0) schedule();
      return statement;
    },
    async stop() {
      stopped = true;
      timer?.();
      await loop?.stop();
      await sending;
    },
  };
}
