import { type Cursor, openFeed, type TopicPhase } from "@khala/client";
import type { KhalaError } from "@khala/contracts";
import { callServer, Refused } from "./api.ts";
import { Known, type Update } from "./known.ts";
import { expired, type TokenSource } from "./tokens.ts";

/** Where following begins: the documents as they are, what changes from now on, or everything that is retained. */
export type From = "list" | "now" | "oldest";

export interface FollowOptions {
  readonly url: string;
  readonly topic: string;
  readonly from: From;
  readonly tokens: TokenSource;
  readonly signal: AbortSignal;
  readonly onUpdate: (update: Update) => void;
  /** For people: what the connection is doing. */
  readonly onState: (state: string) => void;
}

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

async function followOn({
  url,
  topic,
  from,
  tokens,
  signal,
  onUpdate,
  onState,
}: FollowOptions): Promise<void> {
  // Asked first by itself, so that a server that is not there, or refuses, is told as such.
  let first: string | undefined = await tokens.get();
  const { cursor: now } = await callServer<{ cursor: Cursor }>(url, `/sync/v1/list/${topic}?limit=1`, {
    token: first,
    signal,
  });
  let cursor = { list: undefined, now, oldest: { epoch: "", watermark: "0" } }[from];
  let before: TopicPhase | undefined;
  const known = new Known(onUpdate);
  const over = Promise.withResolvers<void>();
  const token = async () => {
    const next = first ?? (await tokens.get());
    first = undefined;
    return next;
  };
  const feed = openFeed({ url, token: tokens.renewable ? token : first });
  const stop = () => over.resolve();
  signal.addEventListener("abort", stop);
  try {
    feed.follow(
      topic,
      {
        position: () => cursor,
        async replace(documents, at) {
          known.replace(topic, documents);
          cursor = at;
        },
        async apply(updates, through) {
          // The server leaves nothing of an update out; the types of its messages cannot say so.
          for (const update of updates) known.take(update as Update);
          cursor = through;
        },
        phase(phase, error) {
          // Each attempt to reconnect says again that there is no line.
          if (phase === before) return;
          before = phase;
          if (phase === "live") onState(`following ${topic}`);
          if (phase === "stale") onState("the cursor is stale: listing anew");
          if (phase === "offline") onState(`disconnected (${error?.message ?? "no answer"}): reconnecting`);
          if (phase === "forbidden") over.reject(refusal(error));
        },
      },
      signal,
    );
    await over.promise;
  } finally {
    signal.removeEventListener("abort", stop);
    await feed.close();
  }
}

function refusal(error: KhalaError | undefined): Error {
  if (error?.code === "token_expired") return expired();
  return new Refused(error?.code ?? "refused", error?.message ?? "The server refused.");
}
