import { setTimeout as delay } from "node:timers/promises";
import { ERRORS, type ErrorCode, SYNC_CHANNEL } from "@khala/contracts";
import { callServer, Refused } from "./api.ts";
import { EXIT, Failure } from "./failure.ts";
import { Known, type Listed, type Update } from "./known.ts";
import { type Channel, ConnectionLost, joinChannel } from "./phoenix_client.ts";
import { expired, type TokenSource } from "./tokens.ts";

/** Where following begins: the documents as they are, what changes from now on, or everything that is retained. */
export type From = "list" | "now" | "oldest";

export interface FollowOptions {
  readonly url: string;
  readonly topic: string;
  readonly from: From;
  readonly tokens: TokenSource;
  readonly random: () => number;
  readonly signal: AbortSignal;
  readonly onUpdate: (update: Update) => void;
  /** For people: what the connection is doing. */
  readonly onState: (state: string) => void;
}

interface Cursor {
  readonly epoch?: string;
  readonly watermark: string;
}

interface Frame {
  readonly update_batch?: { readonly updates?: readonly Update[]; readonly through: Cursor };
  readonly heartbeat?: { readonly watermarks?: Readonly<Record<string, Cursor>> };
  readonly error?: { readonly code: string };
}

const BACKOFF = { base: 100, cap: 10_000 };
const PAGE = 500;

/**
 * Follows a topic until the signal aborts: replay and live from the last cursor, through disconnects; a cursor that is
 * stale is replaced by a list. Throws when the server says that trying again will not help.
 */
export async function follow(options: FollowOptions): Promise<void> {
  try {
    await followOn(options);
  } catch (error) {
    // What was cut short by the signal is no failure.
    if (!options.signal.aborted) throw error;
  }
}

async function followOn(options: FollowOptions): Promise<void> {
  const follower = new Follower(options);
  if (options.from === "list") await follower.list();
  for (let failures = 0; !options.signal.aborted; failures++) {
    try {
      if ((await follower.session(() => (failures = 0))) === "stale") await follower.list();
    } catch (error) {
      if (!follower.wasConnected || !isTemporary(error)) throw error;
    }
    const ceiling = Math.min(BACKOFF.cap, BACKOFF.base * 2 ** Math.min(failures, 20));
    await delay(options.random() * ceiling, undefined, { signal: options.signal }).catch(() => {});
  }
}

class Follower {
  readonly #options: FollowOptions;
  readonly #known: Known;
  #cursor: Cursor | undefined;
  #stale = false;
  /** Whether the server was there once: from then on, its absence is waited out. */
  wasConnected = false;

  constructor(options: FollowOptions) {
    this.#options = options;
    this.#known = new Known(options.onUpdate);
    if (options.from === "oldest") this.#cursor = { watermark: "0" };
  }

  /** Reads all documents; what follows starts where the first page was true. */
  async list(): Promise<void> {
    const token = await this.#options.tokens.get();
    const documents: Listed[] = [];
    let first: Cursor | undefined;
    let after: string | null = "";
    while (after !== null) {
      const page: Page = await this.#page(token, PAGE, after);
      first ??= page.cursor;
      documents.push(...page.documents);
      after = page.next;
    }
    this.#cursor = first;
    this.wasConnected = true;
    this.#known.replace(this.#options.topic, documents);
  }

  #page(token: string, limit: number, after: string): Promise<Page> {
    const { url, topic, signal } = this.#options;
    const query = new URLSearchParams({ limit: String(limit), ...(after && { after }) });
    return callServer(url, `/sync/v1/list/${topic}?${query}`, { token, signal });
  }

  /** One connection, from the join to its end. */
  async session(onLive: () => void): Promise<"closed" | "stale"> {
    const { url, topic, tokens, signal, onState } = this.#options;
    const token = await tokens.get();
    this.#stale = false;
    const channel = await joinChannel({
      url,
      token,
      topic: SYNC_CHANNEL,
      signal,
      onPush: (event, payload) => event === "frame" && this.#take(payload as Frame, channel),
    }).catch((error) => this.#explain(error, token));
    const refreshing = this.#keepFresh(channel);
    try {
      await this.#subscribe(channel);
      this.wasConnected = true;
      onLive();
      onState(`following ${topic}`);
      const { code, reason } = await channel.ended;
      if (this.#stale) {
        onState("the cursor is stale: listing anew");
        return "stale";
      }
      if (!signal.aborted) onState(`disconnected (${reason || code}): reconnecting`);
      if (reason === "token_expired" && !tokens.renewable) throw expired();
      if (isFinal(reason)) throw new Refused(reason, "The server ended the connection.");
      return "closed";
    } finally {
      clearTimeout(refreshing.timer);
      channel.close();
    }
  }

  async #subscribe(channel: Channel): Promise<void> {
    const { topic } = this.#options;
    const resume = this.#cursor && { resume_after: { [topic]: this.#cursor } };
    const reply = await channel.push("subscribe", { topics: [topic], ...resume });
    this.#cursor ??= (reply as { current_watermarks?: Record<string, Cursor> }).current_watermarks?.[topic];
  }

  #take({ update_batch, heartbeat, error }: Frame, channel: Channel): void {
    for (const update of update_batch?.updates ?? []) this.#known.take(update);
    this.#cursor = update_batch?.through ?? heartbeat?.watermarks?.[this.#options.topic] ?? this.#cursor;
    if (error?.code !== "stale_cursor") return;
    this.#stale = true;
    channel.close();
  }

  /** A refused handshake does not say why; the same token over HTTP does. */
  async #explain(error: unknown, token: string): Promise<never> {
    if (error instanceof ConnectionLost) await this.#page(token, 1, "");
    throw error;
  }

  /** Replaces the token of the open socket before it expires, if there is another to be had. */
  #keepFresh(channel: Channel): { timer?: NodeJS.Timeout } {
    const { tokens, onState } = this.#options;
    const refreshing: { timer?: NodeJS.Timeout } = {};
    const schedule = () => {
      refreshing.timer = setTimeout(refresh, tokens.renewAfterMs(Date.now()));
    };
    const refresh = async () => {
      try {
        await channel.push("auth", { token: await tokens.get() });
        schedule();
      } catch (error) {
        onState(`the token could not be replaced: ${(error as Error).message}`);
      }
    };
    if (tokens.renewable) schedule();
    return refreshing;
  }
}

interface Page {
  readonly documents: readonly Listed[];
  readonly cursor: Cursor;
  readonly next: string | null;
}

function isFinal(code: string): boolean {
  return code in ERRORS && code !== "token_expired" && !ERRORS[code as ErrorCode].retryable;
}

function isTemporary(error: unknown): boolean {
  if (error instanceof ConnectionLost) return true;
  if (error instanceof Refused) return !isFinal(error.code);
  return error instanceof Failure && error.exitCode === EXIT.unreachable;
}
