import { KhalaError } from "@khala/contracts";
import type { Database } from "../../database/database.ts";
import type { Context } from "../../kit/context.ts";
import { runLoop, type Service, Wake } from "../../kit/service.ts";
import type { Models } from "../model.ts";
import { rotateEpoch, settleEpoch } from "./epoch.ts";
import { Feed } from "./feed.ts";
import type { Bounds, Heads, Journal } from "./journal.ts";
import type { ReaderOptions } from "./topic_reader.ts";

/** The feeds of this server: one per topic, opened on first use. */
export interface Hub extends Service {
  /** The feed of a topic; not_found for a topic without a model. */
  feed(topic: string): Promise<Feed>;
  /** Feeds that are open. */
  open(): readonly Feed[];
  /** Wakeup: the topic has news. */
  onWakeup(topic: string): void;
  /** The connection to the database was lost: checks everything again, including the epoch. */
  recheck(): void;
  /** Whether the epoch is verified for the current database server. */
  settled(): boolean;
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

/** Opens the hub. It polls all topics in one statement, whatever wakeups say. */
export function openHub(context: Context, options: HubOptions): Hub {
  const feeds = new Map<string, Promise<Feed>>();
  const ready = new Map<string, Feed>();
  const wake = new Wake();
  let heads: Heads | undefined;
  let polledAt = 0;
  let suspicious = false;
  /** The database server that the epoch was verified for. */
  let settledOn = options.database.server();
  const settled = () => options.database.server() === settledOn;
  const reading = { ...options, journal: guarded(options.journal, settled) };

  async function poll(): Promise<boolean> {
    const server = options.database.server();
    const rechecked = suspicious || server !== settledOn;
    if (rechecked) await settleEpoch(options.database, context);
    suspicious = false;
    const before = [...ready.values()].map(({ model, head, epoch }) => ({ topic: model.topic, head, epoch }));
    for (const [topic, { head }] of heads?.topics ?? []) before.push({ topic, head, epoch: heads!.epoch });
    let now = await options.journal.heads();
    // Committed watermarks never disappear. If ours did, this is another database.
    const wentBack = before.some(
      ({ topic, head, epoch }) => epoch === now.epoch && head > boundsOf(now, topic).head,
    );
    if (wentBack && !rechecked) {
      suspicious = true;
      return true;
    }
    if (wentBack) {
      await rotateEpoch(options.database, context);
      now = await options.journal.heads();
    }
    if (options.database.server() !== server) return true;
    settledOn = server;
    heads = now;
    polledAt = context.clock.now();
    for (const feed of ready.values()) feed.observe(now.epoch, boundsOf(now, feed.model.topic));
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
        feed = Feed.open(model, context, reading);
        feeds.set(topic, feed);
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
          context.log.debug({ err: error.message, topic }, "a hinted read failed; the poll repeats it"),
        );
    },
    recheck() {
      suspicious = true;
      wake.wake();
    },
    settled,
    era: () => `${options.database.server()} ${heads?.epoch}`,
    lastPoll: () => ({ heads, at: polledAt }),
    stop: () => loop.stop(),
  };
}

/** Reads only from a server whose epoch is settled: a restored one may repeat watermarks for other rows. */
function guarded(journal: Journal, settled: () => boolean): Journal {
  const checked = <T>(rows: T): T => {
    if (settled()) return rows;
    const message = "The database server was restarted or replaced, and is being looked at. Try again.";
    throw new KhalaError("unavailable", message, { retry_after_ms: 200 });
  };
  return {
    heads: () => journal.heads(),
    read: async (...wanted) => checked(await journal.read(...wanted)),
    readWanted: async (...wanted) => checked(await journal.readWanted(...wanted)),
  };
}

function boundsOf(heads: Heads, topic: string): Bounds {
  return heads.topics.get(topic) ?? { head: 0n, floor: 0n };
}
