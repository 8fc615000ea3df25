import { KhalaError } from "@khala/contracts";
import { may, notFound } from "../../access/access.ts";
import type { Caller } from "../../access/viewer.ts";
import type { Context } from "../../kit/context.ts";
import { withTimeout } from "../../kit/timeout.ts";
import {
  type Conversation,
  type ConversationId,
  type ConversationRef,
  deletedMeanwhile,
  idKey,
} from "../conversation.ts";
import { parseCursor } from "../log/cursor.ts";
import type { MessageStore, PageLimits } from "../messages/message_store.ts";
import type { ConversationMetrics } from "../metrics.ts";
import type { Memberships } from "../people/memberships.ts";
import type { Place, Presence } from "../people/presence.ts";
import type { ConversationPlane } from "../plane.ts";
import { frameOf } from "../queue/frame_queue.ts";
import { checkConvId } from "../runs/chat.ts";
import type { Store } from "../store.ts";
import { Attachment, type LoadSnapshot } from "./attachment.ts";
import { followReader } from "./follow.ts";
import type { ConversationReader } from "./reader.ts";
import type { AcquiredReader, Readers } from "./readers.ts";
import { loadSnapshot, PAGE, type Snapshot } from "./snapshot.ts";
import type { TimelineFrame } from "./timeline.ts";

const READ_TIMEOUT_MS = 10_000;

/** The parts of a conversation that followers need. */
export interface FollowersOptions {
  readonly store: Store;
  readonly messages: MessageStore;
  readonly readers: Readers;
  readonly memberships: Memberships;
  readonly presence: Presence;
  readonly metrics: ConversationMetrics;
  /** Announces to the sockets of a conversation which branch is active, if they do not know yet. */
  readonly announced: (conversation: Conversation) => Promise<Conversation>;
  /** Throws once it has aborted. */
  readonly stopping: AbortSignal;
}

/** The followers of conversations on this server: sockets, and streams of runs. */
export interface Followers extends Pick<ConversationPlane, "attach" | "follow" | "attachedTo"> {
  /** The newest messages, and the cursor at which they are. */
  snapshot(conversation: ConversationRef, limits: PageLimits): Promise<Snapshot & { cursor: string }>;
  /** Resolves when no stream follows a run any more. */
  ended(): Promise<void>;
}

/** Refuses requests of a server that stops. */
export function refuseWhen(stopping: boolean): void {
  if (!stopping) return;
  throw new KhalaError("shutting_down", "The server is shutting down. Try again in a moment.", {
    retry_after_ms: 1_000,
  });
}

/** Opens what sockets and streams follow conversations with. */
export function openFollowers(context: Context, options: FollowersOptions): Followers {
  const { store, messages, readers, memberships, presence, metrics, announced, stopping } = options;
  /** Streams that follow a run. */
  const follows = new Set<Promise<void>>();
  /** The number of sockets per conversation. */
  const attachments = new Map<string, number>();
  let sockets = 0;
  metrics.sockets.addCallback((result) => result.observe(sockets));

  function countSocket(conversation: ConversationId, by: 1 | -1): void {
    sockets += by;
    const key = idKey(conversation);
    const count = (attachments.get(key) ?? 0) + by;
    if (count > 0) attachments.set(key, count);
    else attachments.delete(key);
  }

  /** A reader that has just read the log: a cached one may have missed a deletion on another server. */
  async function freshReader(conversation: ConversationRef): Promise<AcquiredReader> {
    for (;;) {
      const held = await readers.acquire(conversation);
      try {
        await refresh(context, held.reader);
      } catch (error) {
        held.release();
        throw error;
      }
      if (!held.reader.ended) return held;
      held.release();
    }
  }

  /** The newest messages, and the cursor at which they are. */
  async function readSnapshot(
    conversation: ConversationRef,
    limits: PageLimits,
  ): Promise<Snapshot & { cursor: string }> {
    for (;;) {
      const { reader, release } = await freshReader(conversation);
      try {
        const snapshot = await loadSnapshot(reader, messages, conversation, limits);
        // The reader has ended otherwise, and the next one reads the log that replaces its own.
        if (snapshot) return { ...snapshot, cursor: reader.cursor };
      } finally {
        release();
      }
    }
  }

  /** Calls `lost` when the caller may not read the conversation any more, because its role has changed. */
  function watchAccess(conversation: Conversation, caller: Caller, lost: (error: KhalaError) => void) {
    let viewer = caller;
    let { role } = conversation;
    const mayRead = (as: Caller) => may(as, "conversation.read", { ...conversation, role });
    // Without a role there is nothing that can change.
    const forget = role
      ? memberships.watch({ ...conversation, subject: caller.subject, role }, (now) => {
          role = now;
          if (!mayRead(viewer)) lost(notFound("conversation", conversation.convId));
        })
      : () => {};
    return {
      forget,
      check(as: Caller) {
        viewer = as;
        if (!mayRead(as)) throw notFound("conversation", conversation.convId);
      },
    };
  }

  return {
    snapshot: readSnapshot,
    attachedTo: (conversation) => attachments.get(idKey(conversation)) ?? 0,

    async ended() {
      while (follows.size > 0) await Promise.all(follows);
    },

    async attach(caller, convId, subscriber, start, shown) {
      refuseWhen(stopping.aborted);
      checkConvId(convId);
      const conversation = await announced(await store.ensure(caller, "conversation.read", convId));
      const { reader, release } = await freshReader(conversation);
      const load: LoadSnapshot = (count = PAGE.messages) =>
        loadSnapshot(reader, messages, conversation, { ...PAGE, messages: count });
      const attachment = new Attachment(conversation, reader, load, subscriber, context, metrics);
      let attached = true;
      let place: Place | undefined;
      countSocket(conversation, 1);
      const access = watchAccess(conversation, caller, (error) => {
        attachment.close();
        detach();
        subscriber.end(error);
      });
      const detach = () => {
        if (!attached) return;
        attached = false;
        place?.leave();
        access.forget();
        countSocket(conversation, -1);
        release();
      };
      try {
        await attachment.begin(start, async () => {
          const current = await store.current(conversation);
          if (!current) throw deletedMeanwhile();
          return { run: current.run, queued: frameOf(current.queued) };
        });
      } catch (error) {
        attachment.close();
        detach();
        throw error;
      }
      // The first frame is hello.
      if (shown && attached) {
        const { device = context.newId().slice(-8) } = shown;
        const offer = (frame: TimelineFrame) => void subscriber.offer(frame);
        place = presence.join(conversation, { subject: caller.subject, device, offer });
      }
      return {
        check: access.check,
        drained: () => attachment.drained(),
        heartbeat: () => attachment.heartbeat(),
        typing(on) {
          if (!place) throw notPresent();
          place.typing(on);
        },
        close() {
          attachment.close();
          detach();
        },
      };
    },

    async *follow(caller, convId, after, signal) {
      refuseWhen(stopping.aborted);
      checkConvId(convId);
      const cursor = parseCursor(after, "after");
      const conversation = await store.check(caller, "conversation.read", convId);
      const { promise: followed, resolve: leave } = Promise.withResolvers<void>();
      follows.add(followed);
      const removed = new AbortController();
      const access = watchAccess(conversation, caller, (error) => removed.abort(error));
      try {
        const { reader, release } = await readers.acquire(conversation);
        try {
          const until = AbortSignal.any([signal, stopping, removed.signal]);
          yield* followReader(context, reader, cursor, until);
          removed.signal.throwIfAborted();
          if (!signal.aborted) refuseWhen(stopping.aborted);
        } finally {
          release();
        }
      } finally {
        follows.delete(followed);
        leave();
        access.forget();
      }
    },
  };
}

function notPresent(): KhalaError {
  const message = "This socket does not take part in presence. Connect with device=<name> or presence=1.";
  return new KhalaError("invalid_request", message);
}

/** Reads the log; fails when the log does not answer in time. */
async function refresh(context: Context, reader: ConversationReader): Promise<void> {
  const refreshed = reader.refresh().then(() => true);
  if (await withTimeout(context.clock, READ_TIMEOUT_MS, refreshed, false)) return;
  const message = "The conversation cannot be read right now. Try again in a moment.";
  throw new KhalaError("unavailable", message, { retry_after_ms: 1_000 });
}
