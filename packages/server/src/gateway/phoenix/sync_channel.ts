import { create, type DescMessage, type MessageInitShape, toBinary, toJson } from "@bufbuild/protobuf";
import { KhalaError, phoenix, SYNC_CHANNEL, type Wire } from "@khala/contracts";
import {
  AuthenticatedSchema,
  AuthSchema,
  type Cursor,
  type CursorJson,
  CursorSchema,
  type ErrorJson,
  FrameSchema,
  HeartbeatSchema,
  SubscribedSchema,
  SubscribeSchema,
  UnsubscribeSchema,
} from "@khala/contracts/sync/v1";
import { requireScope } from "../../access/access.ts";
import type { Context } from "../../kit/context.ts";
import { type ConcurrencyQuota, openConcurrencyQuota } from "../../kit/quota.ts";
import type { SyncMetrics } from "../../sync/metrics.ts";
import type { Models } from "../../sync/model.ts";
import { boundsFor, readFollowable, type TopicPart, topicOf } from "../../sync/part.ts";
import { followedRights, resumeFrom, startOf, viewerEpoch } from "../../sync/read/cursor.ts";
import type { Feed, Subscription } from "../../sync/read/feed.ts";
import type { Hub } from "../../sync/read/hub.ts";
import type { Bounds } from "../../sync/read/journal.ts";
import type { Starts } from "../../sync/read/starts.ts";
import type { Encoding } from "../../sync/read/update_codec.ts";
import { rightsFingerprint } from "../auth/claims.ts";
import { readMessage } from "../http/read_request.ts";
import {
  type Channel,
  type ChannelDefinition,
  type ChannelSocket,
  encodingOf,
  ok,
  type Reply,
} from "./channel.ts";
import { ReplayScheduler } from "./replay_scheduler.ts";

export interface SyncChannelOptions {
  readonly hub: Hub;
  readonly models: Models;
  readonly metrics: SyncMetrics;
  readonly maxTopics: number;
  /** Subscriptions of an org on this server. */
  readonly maxSubscriptionsPerOrg: number;
}

const JSON_OPTIONS = { useProtoFieldName: true, alwaysEmitImplicit: true } as const;

/** The channel `sync:v1`: subscribe, replay, live. */
export function syncChannel(context: Context, options: SyncChannelOptions): ChannelDefinition {
  const subscriptions = openConcurrencyQuota(context, {
    name: "subscriptions",
    of: "subscriptions on this server",
    limit: options.maxSubscriptionsPerOrg,
  });
  return {
    topic: SYNC_CHANNEL,
    // Everybody may join: each topic that is subscribed to is checked.
    join: "document.read",
    events: { subscribe: "document.read", unsubscribe: "document.read", heartbeat: "document.read" },
    open: (socket, params) =>
      new SyncChannel(socket, encodingOf(params), context, { ...options, subscriptions }),
  };
}

type FrameBody = Exclude<MessageInitShape<typeof FrameSchema>, { $typeName: string }>["body"];

interface Followed extends Subscription {
  readonly feed: Feed;
  /** The fingerprint of the rights that its cursors are bound to. */
  readonly rights: string;
  /** Gives its place in the org's quota back. */
  readonly release: () => void;
}

/** The subscriptions of a request, by name: a topic or a part, from a cursor or from now on. */
interface Place {
  readonly name: string;
  readonly part: TopicPart | undefined;
  readonly feed: Feed;
  readonly sent: Cursor | undefined;
}

/** Newer clients may send fields that this server does not know. */
const TOLERANT = { ignoreUnknownFields: true } as const;

/** `items` are of errors over HTTP; the mapping would write an empty list of them into each error frame. */
function withoutEmptyItems(key: string, value: unknown): unknown {
  return key === "items" && Array.isArray(value) && value.length === 0 ? undefined : value;
}

class SyncChannel implements Channel {
  readonly #socket: ChannelSocket;
  readonly #encoding: Encoding;
  readonly #context: Context;
  readonly #options: SyncChannelOptions & { readonly subscriptions: ConcurrencyQuota };
  readonly #followed = new Map<string, Followed>();
  readonly #pump: ReplayScheduler<Followed>;
  #closed = false;

  constructor(
    socket: ChannelSocket,
    encoding: Encoding,
    context: Context,
    options: SyncChannelOptions & { readonly subscriptions: ConcurrencyQuota },
  ) {
    this.#socket = socket;
    this.#encoding = encoding;
    this.#context = context;
    this.#options = options;
    this.#pump = new ReplayScheduler(context, (subscription) => subscription.feed.pull(subscription));
  }

  async receive(event: string, payload: unknown): Promise<Reply> {
    switch (event) {
      case "subscribe":
        return this.#subscribe(payload);
      case "unsubscribe":
        for (const name of readMessage(UnsubscribeSchema, payload, TOLERANT).topics) this.#unfollow(name);
        return ok();
      case "heartbeat":
        return this.#answer(HeartbeatSchema, { watermarks: this.#positions() });
      default:
        return this.#authenticate(readMessage(AuthSchema, payload).token);
    }
  }

  async #subscribe(payload: unknown): Promise<Reply> {
    const { topics: asked, resumeAfter } = readMessage(SubscribeSchema, payload, TOLERANT);
    const topics = [...new Set(asked)];
    if (topics.length === 0)
      throw new KhalaError("invalid_request", "Send at least one topic.", { field: "topics" });
    const { subscriptions } = this.#options;
    const { org } = this.#socket.viewer();
    const isNew = topics.some((topic) => !this.#followed.has(topic));
    if (isNew && !subscriptions.hasRoom(org)) subscriptions.acquire(org);
    const total = new Set([...this.#followed.keys(), ...topics]).size;
    if (total > this.#options.maxTopics) {
      throw new KhalaError(
        "limit_exceeded",
        `A socket may follow at most ${this.#options.maxTopics} topics.`,
        {
          field: "topics",
        },
      );
    }
    const unnamed = Object.keys(resumeAfter).find((topic) => !topics.includes(topic));
    if (unnamed !== undefined) {
      throw new KhalaError("invalid_request", `resume_after names "${unnamed}", which is not in topics.`, {
        field: "resume_after",
      });
    }
    const negative = Object.keys(resumeAfter).find((topic) => resumeAfter[topic]!.watermark < 0n);
    if (negative !== undefined) {
      throw new KhalaError("invalid_request", `The watermark of "${negative}" is less than 0.`, {
        field: "resume_after",
      });
    }
    const requireTopics = () => {
      for (const name of topics)
        requireScope(this.#socket.viewer(), "document.read", { topic: topicOf(name) });
    };
    requireTopics();
    const places = await Promise.all(
      topics.map(async (name) => {
        const { model, part } = readFollowable(this.#options.models, name);
        return { name, part, feed: await this.#options.hub.feed(model.topic), sent: resumeAfter[name] };
      }),
    );
    await Promise.all(places.map(({ feed, sent }) => this.#catchHead(feed, sent)));
    const starts = await this.#options.hub.starts();
    if (this.#closed) throw new KhalaError("shutting_down", "The channel was closed.");
    // The token may have been replaced since.
    requireTopics();
    // Nothing is awaited from here to the reply, so its positions are those of the subscriptions.
    const rights = rightsFingerprint(this.#socket.viewer());
    const current = Object.fromEntries(
      places.map(({ name, part, feed }) => [
        name,
        this.#cursor(followedRights(rights, part), feed.head, feed.history),
      ]),
    );
    const behind = places.map((place) => this.#follow(place, rights, starts));
    // The reply must be on the wire before the first frame.
    setImmediate(() => {
      for (const start of behind) start();
    });
    return this.#answer(SubscribedSchema, {
      subscriptionId: this.#context.newId(),
      currentWatermarks: current,
    });
  }

  /** A cursor from another server may be newer than this one's last read or poll: both are repeated before it is refused. */
  async #catchHead(feed: Feed, sent: Cursor | undefined): Promise<void> {
    if (!sent) return;
    if (sent.epoch !== "") await this.#options.hub.starts(startOf(sent.epoch));
    if (sent.watermark > feed.head) await feed.refresh();
  }

  #follow(place: Place, ofViewer: string, starts: Starts): () => void {
    const { name, part, feed, sent } = place;
    const { topic } = feed.model;
    this.#unfollow(name);
    const viewer = this.#socket.viewer();
    const rights = followedRights(ofViewer, part);
    const bounds = boundsFor(part, feed.bounds);
    const from = sent ? resumeFrom(sent, { topic, rights, starts, bounds }) : feed.head;
    if (sent) this.#options.metrics.resumes.add(1, { topic });
    if (from === "stale") {
      return () => {
        if (!this.#closed) this.#pushStale(place, rights, sent!, bounds);
      };
    }
    const stamp = Buffer.from(rights);
    const { outbox } = this.#socket;
    const subscription: Followed = {
      feed,
      org: viewer.org,
      subject: viewer.subject,
      part,
      rights,
      release: this.#options.subscriptions.acquireAnyway(viewer.org),
      encoding: this.#encoding,
      history: feed.history,
      position: from,
      live: false,
      replaying: sent !== undefined,
      ended: false,
      offer: (frame) => {
        const taken = outbox.offer(frame, stamp);
        if (!taken) this.#pump.add(subscription);
        return taken;
      },
      stale: (position, bounds) => {
        const cursor = this.#cursor(rights, position, subscription.history);
        this.#unfollow(name);
        const now = followedRights(rightsFingerprint(this.#socket.viewer()), part);
        this.#pushStale(place, now, cursor, boundsFor(part, bounds));
      },
    };
    this.#followed.set(name, subscription);
    if (!sent) feed.follow(subscription);
    const started = this.#context.clock.now();
    return () => {
      if (subscription.live || this.#followed.get(name) !== subscription) return;
      this.#pump.add(subscription, () => {
        if (sent && subscription.live)
          this.#options.metrics.catchUp.record(this.#context.clock.now() - started, { topic });
      });
    };
  }

  #unfollow(name: string): void {
    const subscription = this.#followed.get(name);
    if (!subscription) return;
    this.#followed.delete(name);
    this.#pump.delete(subscription);
    subscription.release();
    subscription.feed.leave(subscription);
  }

  async #authenticate(token: string): Promise<Reply> {
    const viewer = await this.#socket.authenticate(token);
    return this.#answer(AuthenticatedSchema, { expiresAt: new Date(viewer.expiresAt).toISOString() });
  }

  viewerChanged(): void {
    const rights = rightsFingerprint(this.#socket.viewer());
    // Positions are true only for the rights that they were read under.
    for (const subscription of [...this.#followed.values()])
      if (subscription.rights !== followedRights(rights, subscription.part))
        subscription.stale(subscription.feed.head, subscription.feed.bounds);
  }

  onWritable(): void {
    this.#pump.start();
  }

  heartbeat(): void {
    this.#pushFrame({ case: "heartbeat", value: create(HeartbeatSchema, { watermarks: this.#positions() }) });
  }

  sendError(error: Wire<ErrorJson>): void {
    if (error.code === "slow_consumer")
      for (const { feed } of this.#followed.values())
        this.#options.metrics.dropped.add(1, { topic: feed.model.topic });
    this.#pushFrame({
      case: "error",
      value: {
        code: error.code ?? "internal",
        message: error.message ?? "",
        ...(error.retry_after_ms !== undefined && { retryAfterMs: BigInt(error.retry_after_ms) }),
      },
    });
  }

  close(): void {
    this.#closed = true;
    for (const name of [...this.#followed.keys()]) this.#unfollow(name);
    this.#pump.stop();
  }

  cursors(): Record<string, CursorJson> {
    const positions = Object.entries(this.#positions());
    return Object.fromEntries(
      positions.map(([topic, { epoch, watermark }]) => [topic, { epoch, watermark: String(watermark) }]),
    );
  }

  #positions(): Record<string, Cursor> {
    const entries = [...this.#followed].map(([topic, { feed, rights, live, position, history }]) => {
      // The history of the position: the feed may be in another one, which a running replay learns at its next batch.
      return [topic, this.#cursor(rights, live ? feed.head : position, history)];
    });
    return Object.fromEntries(entries);
  }

  #cursor(rights: string, watermark: bigint, { epoch }: Feed["history"]): Cursor {
    return create(CursorSchema, { epoch: viewerEpoch(epoch, rights), watermark });
  }

  #pushStale({ name, feed }: Place, rights: string, sent: Cursor, bounds: Bounds): void {
    const { topic } = feed.model;
    const floor = this.#cursor(rights, bounds.floor, feed.history);
    const reason = sent.epoch !== floor.epoch ? "epoch" : sent.watermark < bounds.floor ? "purged" : "future";
    this.#options.metrics.stale.add(1, { topic, reason });
    const message = `The cursor of ${name} cannot be resumed (${reason}). GET /sync/v1/list/${name}, then subscribe from its cursor.`;
    this.#pushFrame({
      case: "error",
      value: { code: "stale_cursor", message, topics: [{ topic: name, sent, floor }] },
    });
  }

  #pushFrame(body: NonNullable<FrameBody>): void {
    const frame = create(FrameSchema, { body });
    this.#socket.outbox.send(
      this.#encoding === "proto"
        ? phoenix.broadcastBinary(SYNC_CHANNEL, "frame", toBinary(FrameSchema, frame))
        : phoenix.pushText(
            null,
            SYNC_CHANNEL,
            "frame",
            JSON.stringify(toJson(FrameSchema, frame, JSON_OPTIONS), withoutEmptyItems),
          ),
    );
  }

  #answer<S extends DescMessage>(schema: S, init: Parameters<typeof create<S>>[1]): Reply {
    const message = create(schema, init);
    return ok(
      this.#encoding === "proto"
        ? toBinary(schema, message)
        : JSON.stringify(toJson(schema, message, JSON_OPTIONS)),
    );
  }
}
