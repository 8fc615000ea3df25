import type { KhalaError } from "@khala/contracts";
import { notFound, requireScope } from "../../access/access.ts";
import type { Viewer } from "../../access/viewer.ts";
import type { ConversationPlane } from "../../conversations/plane.ts";
import type { Context } from "../../kit/context.ts";
import type { Models } from "../../sync/model.ts";
import type { Feed, Subscription } from "../../sync/read/feed.ts";
import type { Hub } from "../../sync/read/hub.ts";
import type { McpResource } from "./resources.ts";

/** The dependencies of a watch. */
export interface WatchOptions {
  readonly hub: Hub;
  readonly models: Models;
  readonly conversations: ConversationPlane;
}

/** How long changes are collected before one notification announces them. */
const COLLECT_MS = 100;

/** A resource that is watched. */
export interface Watch {
  /** Throws when this viewer may not watch it. */
  check(viewer: Viewer): void;
  stop(): void;
}

/** Calls `changed` when the viewer's resource has changed, once for changes in quick succession. */
export async function watch(
  context: Context,
  options: WatchOptions,
  viewer: Viewer,
  resource: McpResource,
  changed: () => void,
): Promise<Watch> {
  let cancel: (() => void) | undefined;
  const onChange = () => {
    cancel ??= context.clock.after(COLLECT_MS, () => {
      cancel = undefined;
      changed();
    });
  };
  const watched =
    resource.kind === "conversation"
      ? await watchConversation(options, viewer, resource.convId, onChange)
      : await watchDocuments(options, viewer, resource, onChange);
  return {
    check: (current) => watched.check(current),
    stop() {
      watched.stop();
      cancel?.();
    },
  };
}

async function watchDocuments(
  { hub, models }: WatchOptions,
  viewer: Viewer,
  resource: Exclude<McpResource, { kind: "conversation" }>,
  onChange: () => void,
): Promise<Watch> {
  const docKey = resource.kind === "document" ? resource.docKey : undefined;
  const topic = resource.kind === "topic" ? resource.topic : models.byKey(resource.docKey)?.topic;
  if (topic === undefined) throw notFound("document", docKey ?? "");
  const check = (current: Viewer) => requireScope(current, "document.read", { topic });
  check(viewer);
  const feed = await hub.feed(topic);
  // Payloads may contain the same words: then a client reads once more than needed.
  const named = docKey === undefined ? "" : `"doc_key":${JSON.stringify(docKey)}`;
  let current = follow();
  return { check, stop: () => feed.leave(current) };

  function follow(): Subscription {
    const subscription = subscriptionOf(feed, viewer, {
      offer({ bytes }) {
        if (bytes.includes(named)) onChange();
        return true;
      },
      // Its history is another one now: whatever was known of it may have changed.
      stale() {
        feed.leave(subscription);
        current = follow();
        onChange();
      },
    });
    feed.follow(subscription);
    return subscription;
  }
}

function subscriptionOf(
  feed: Feed,
  { org, subject }: Viewer,
  handlers: Pick<Subscription, "offer" | "stale">,
): Subscription {
  const at = { position: feed.head, history: feed.history };
  const state = { live: false, replaying: false, ended: false };
  return { org, subject, encoding: "json", ...at, ...state, ...handlers };
}

async function watchConversation(
  { conversations }: WatchOptions,
  viewer: Viewer,
  convId: string,
  onChange: () => void,
): Promise<Watch> {
  requireScope(viewer, "conversation.read");
  // Attaching would begin one that is not there.
  await conversations.state(viewer, convId);
  const subscriber = {
    offer(frame: { readonly frames: readonly { readonly json: string }[] }) {
      if (frame.frames.some(({ json }) => CHANGES.test(json))) onChange();
      return true;
    },
    // It was deleted, or this server stops: a reader learns which.
    end: (_error: KhalaError) => onChange(),
  };
  const attached = await conversations.attach(viewer, convId, subscriber, { kind: "now" });
  return {
    check(current) {
      requireScope(current, "conversation.read");
      attached.check(current);
    },
    stop: () => attached.close(),
  };
}

/** Frames that change what is read of a conversation: not who is there, nor signs of life. */
const CHANGES = /^\{"type":"(event|snapshot|resync)"/;
