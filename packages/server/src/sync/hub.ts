import { KhalaError } from "@khala/contracts";
import type { Database } from "../database/database.ts";
import type { Context } from "../kit/context.ts";
import { runLoop, type Service, Wake } from "../kit/service.ts";
import { rotateEpoch, settleEpoch } from "./epoch.ts";
import { Feed } from "./feed.ts";
import type { Bounds, Heads } from "./journal.ts";
import type { Models } from "./model.ts";
import type { ReaderOptions } from "./topic_reader.ts";

/** The feeds of this server: one per topic, opened when somebody first follows it. */
export interface Hub extends Service {
  /** The feed of a topic; not_found for a topic without a model. */
  feed(topic: string): Promise<Feed>;
  /** Feeds that are open. */
  open(): readonly Feed[];
  /** Hint: the topic has news. */
  hint(topic: string): void;
  /** The connection to the database was lost: look at everything again, the epoch included. */
  recheck(): void;
  /** What the last poll of the database said, and when. */
  lastPoll(): { heads: Heads | undefined; at: number };
}

export interface HubOptions extends ReaderOptions {
  readonly database: Database;
  readonly models: Models;
  readonly pollMs: number;
}

/** Opens the hub. It polls all topics in one statement, whatever hints say. */
export function openHub(context: Context, options: HubOptions): Hub {
  const feeds = new Map<string, Promise<Feed>>();
  const ready = new Map<string, Feed>();
  const wake = new Wake();
  let heads: Heads | undefined;
  let polledAt = 0;
  let suspicious = false;

  async function poll(): Promise<boolean> {
    const rechecked = suspicious;
    if (suspicious) await settleEpoch(options.database, context);
    suspicious = false;
    const before = new Map([...ready.values()].map((feed) => [feed, feed.head]));
    let now = await options.journal.heads();
    // Committed watermarks do not go away. If ours did, this is another database, even if it bears the same marks.
    const wentBack = [...before].some(
      ([feed, head]) => now.epoch === feed.epoch && head > boundsOf(now, feed).head,
    );
    if (wentBack && !rechecked) {
      suspicious = true;
      return true;
    }
    if (wentBack) {
      await rotateEpoch(options.database, context);
      now = await options.journal.heads();
    }
    heads = now;
    polledAt = context.clock.now();
    for (const feed of ready.values()) feed.observe(now.epoch, boundsOf(now, feed));
    return false;
  }

  const loop = runLoop(context, "hub", {
    step: poll,
    wake,
    idleMs: options.pollMs,
    onError: () => {
      suspicious = true;
    },
  });

  return {
    feed(topic) {
      const model = options.models.byTopic(topic);
      if (!model)
        return Promise.reject(
          new KhalaError("not_found", `There is no topic "${topic}".`, { field: "topics" }),
        );
      let feed = feeds.get(topic);
      if (!feed) {
        feed = Feed.open(model, context, options);
        feeds.set(topic, feed);
        feed.then(
          (opened) => ready.set(topic, opened),
          () => feeds.delete(topic),
        );
      }
      return feed;
    },
    open: () => [...ready.values()],
    hint(topic) {
      ready
        .get(topic)
        ?.refresh()
        .catch((error) =>
          context.log.debug({ err: error.message, topic }, "a hinted read failed; the poll repeats it"),
        );
    },
    recheck() {
      suspicious = true;
      wake.wake();
    },
    lastPoll: () => ({ heads, at: polledAt }),
    stop: () => loop.stop(),
  };
}

function boundsOf(heads: Heads, feed: Feed): Bounds {
  return heads.topics.get(feed.model.topic) ?? { head: 0n, floor: 0n };
}
