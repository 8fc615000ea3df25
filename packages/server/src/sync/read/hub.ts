import { KhalaError } from "@khala/contracts";
import type { Database } from "../../database/database.ts";
import type { Context } from "../../kit/context.ts";
import { runLoop, type Service, Wake } from "../../kit/service.ts";
import type { Models } from "../model.ts";
import { Feed } from "./feed.ts";
import type { Bounds, Heads, Journal } from "./journal.ts";
import { readStarts, rotateEpoch, Starts } from "./starts.ts";
import type { ReaderOptions } from "./topic_reader.ts";

/** The feeds of this server: one per topic, opened on first use. */
export interface Hub extends Service {
  /** The feed of a topic; not_found for a topic without a model. */
  feed(topic: string): Promise<Feed>;
  /** Feeds that are open. */
  open(): readonly Feed[];
  /** Wakeup: the topic has news. */
  onWakeup(topic: string): void;
  /** Wakeups may have been lost: polls now. */
  recheck(): void;
  /** Whether the feeds have checked the current database server. */
  settled(): boolean;
  /** The starts that the database knew at the last poll, or at one more if a given start was not among them. */
  starts(named?: string): Promise<Starts>;
  /** Changes with the database or its server: caches may be invalid. */
  era(): string;
  /** The result and the time of the last poll. */
  lastPoll(): { heads: Heads | undefined; at: number };
}

export interface HubOptions extends ReaderOptions {
  readonly database: Database;
  readonly models: Models;
  readonly pollMs: number;
}

/** How often to poll while no topic is followed: nobody waits for updates then. */
const UNFOLLOWED_POLL_MS = 1_000;

/** Opens the hub. It polls all topics in one statement, whatever wakeups say. */
export function openHub(context: Context, options: HubOptions): Hub {
  const feeds = new Map<string, Promise<Feed>>();
  const ready = new Map<string, Feed>();
  const wake = new Wake();
  let heads: Heads | undefined;
  let starts = new Starts([]);
  let polledAt = 0;
  /** The database server that was checked last. */
  let settledOn = options.database.server();
  const settled = () => options.database.server() === settledOn;
  const reading = { ...options, journal: guarded(options.journal, settled) };

  async function poll(): Promise<boolean> {
    const server = options.database.server();
    // A feed opened since may know more than this poll.
    const feedsBefore = [...ready.values()];
    const before = feedsBefore.map(({ model, head, epoch }) => ({ topic: model.topic, head, epoch }));
    for (const [topic, { head }] of heads?.topics ?? []) before.push({ topic, head, epoch: heads!.epoch });
    let now = await options.journal.heads();
    // Committed watermarks never disappear. If they did without a new start, rows were restored into the running database.
    if (before.some(({ topic, head, epoch }) => epoch === now.epoch && head > boundsOf(now, topic).head)) {
      const epoch = await rotateEpoch(options.database, context);
      context.log.warn(
        { before: now.epoch, epoch },
        "the journal went back: a new epoch begins, clients list again",
      );
      now = await options.journal.heads();
    }
    const known = starts.knows(now.epoch) ? starts : await readStarts(options.database);
    if (options.database.server() !== server) return true;
    settledOn = server;
    heads = now;
    starts = known;
    polledAt = context.clock.now();
    for (const feed of feedsBefore) feed.observe(now.epoch, boundsOf(now, feed.model.topic), starts);
    return false;
  }

  /** One poll after the other: an older answer never follows a newer one. */
  let polling: Promise<unknown> = Promise.resolve();
  function polled(): Promise<boolean> {
    const next = polling.then(poll);
    polling = next.catch(() => {});
    return next;
  }

  const loop = runLoop(context, "hub", {
    step: polled,
    wake,
    get idleMs() {
      return feeds.size > 0 ? options.pollMs : Math.max(options.pollMs, UNFOLLOWED_POLL_MS);
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
        feed = Feed.open(model, context, reading);
        feeds.set(topic, feed);
        // The current pause may be that of a server without feeds.
        wake.wake();
        feed.then(
          (opened) => ready.set(topic, opened),
          () => feeds.delete(topic),
        );
      }
      return feed;
    },
    open: () => [...ready.values()],
    onWakeup(topic) {
      ready
        .get(topic)
        ?.refresh()
        .catch((error) =>
          context.log.debug(
            { err: error.message, topic },
            "a read after a wake-up failed; the poll repeats it",
          ),
        );
    },
    recheck: () => wake.wake(),
    settled,
    async starts(named) {
      if (named && !starts.knows(named)) await polled();
      return starts;
    },
    era: () => `${options.database.server()} ${heads?.epoch}`,
    lastPoll: () => ({ heads, at: polledAt }),
    stop: () => loop.stop(),
  };
}

/** Reads only from a server that was checked: a restored one may repeat watermarks for other rows. */
function guarded(journal: Journal, settled: () => boolean): Journal {
  const checked = <T>(rows: T): T => {
    if (settled()) return rows;
    const message = "The database server was restarted or replaced, and Khala is checking it. Try again.";
    throw new KhalaError("unavailable", message, { retry_after_ms: 200 });
  };
  return {
    heads: () => journal.heads(),
    read: async (...wanted) => checked(await journal.read(...wanted)),
    readWanted: async (...wanted) => checked(await journal.readWanted(...wanted)),
  };
}

function boundsOf(heads: Heads, topic: string): Bounds {
  return heads.topics.get(topic) ?? { head: 0n, floor: 0n, partsFloor: 0n };
}
