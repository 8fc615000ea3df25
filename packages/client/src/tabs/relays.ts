import type { ConversationSource, ConversationState } from "../conversation/source.ts";
import type { Cursor, StoredTopic } from "../storage/storage.ts";
import { reaches } from "../sync/cursor.ts";
import type { TopicSource } from "../sync/source.ts";
import { errorWire, type LeaderMessage, type Part } from "./messages.ts";

/** Relays a topic or conversation to other tabs until the signal aborts. */
export interface Relay {
  /** The last status message, for tabs that join later. */
  status(): LeaderMessage | undefined;
  /** Reads the current state once it exists, in parts; undefined when the tab that asks is up to date. */
  readState(position: Cursor | string | undefined, signal: AbortSignal, onState: OnState): void;
}

type OnState = (parts: Iterator<Part, void> | undefined) => void;
type Post = (message: LeaderMessage) => void;

/** Relays a topic, each batch with the positions before and after it. */
export function topicRelay(topics: TopicSource, name: string, post: Post, signal: AbortSignal): Relay {
  const subject = { plane: "sync", name } as const;
  let status: LeaderMessage | undefined;
  let at: Cursor | undefined;
  const sink = {
    position: () => undefined,
    async replace(_documents: unknown, cursor: Cursor) {
      // The tabs that asked get the first state anyway.
      if (at) post({ type: "replaced", ...subject });
      at = cursor;
    },
    async apply(updates: Parameters<TopicSinkOf["apply"]>[0], through: Cursor) {
      if (at) post({ type: "batch", name, batch: { from: at, updates, through } });
      else post({ type: "replaced", ...subject });
      at = through;
    },
    phase(...[phase, error]: Parameters<TopicSinkOf["phase"]>) {
      status = { type: "phase", name, phase, ...errorWire(error) };
      post(status);
    },
  };
  topics.follow(name, sink, signal);
  return {
    status: () => status,
    readState(position, asked, onState) {
      const once = until(asked);
      const readState = {
        position: () => undefined,
        async replace(...[documents, cursor]: Parameters<TopicSinkOf["replace"]>) {
          if (once.signal.aborted) return;
          once.abort();
          const same = typeof position === "object" && reaches(position, cursor);
          onState(same ? undefined : documentParts({ documents, cursor }));
        },
        apply: async () => {},
        phase() {},
      };
      topics.follow(name, readState, once.signal);
    },
  };
}

type TopicSinkOf = Parameters<TopicSource["follow"]>[1];
type ConversationSinkOf = Parameters<ConversationSource["follow"]>[1];

/** Relays a conversation, frame by frame. */
export function conversationRelay(
  conversations: ConversationSource,
  name: string,
  post: Post,
  signal: AbortSignal,
): Relay {
  const subject = { plane: "conversation", name } as const;
  let status: LeaderMessage | undefined;
  /** Between a resync and its snapshot the state is outdated, so reads wait. */
  let resyncing = false;
  let waiting: (() => void)[] = [];
  let following = false;
  const settle = () => {
    resyncing = false;
    for (const readState of waiting.splice(0)) readState();
  };
  const sink: ConversationSinkOf = {
    position: () => undefined,
    restore() {
      // The tabs that asked get the initial state anyway.
      if (following) post({ type: "replaced", ...subject });
      settle();
    },
    frame(frame) {
      post({ type: "frame", name, frame });
      if (frame.type === "resync") resyncing = true;
      if (frame.type === "snapshot") settle();
    },
    health(live, error) {
      status = { type: "health", name, live, ...errorWire(error) };
      post(status);
    },
  };
  conversations.follow(name, sink, signal);
  following = true;

  function readState(position: Cursor | string | undefined, asked: AbortSignal, onState: OnState): void {
    if (asked.aborted) return;
    if (resyncing) {
      waiting = [...waiting.slice(-MAX_WAITING), () => readState(position, asked, onState)];
      return;
    }
    const once = until(asked);
    let parts: Iterator<Part, void> | undefined;
    const state: ConversationSinkOf = {
      position: () => undefined,
      restore(found) {
        if (found.cursor !== position) parts = messageParts(found);
      },
      frame() {},
      health() {},
    };
    conversations.follow(name, state, once.signal);
    // `follow` reports the state synchronously. Without one, the frames to come are complete.
    once.abort();
    onState(parts);
  }
  return { status: () => status, readState };
}

/** Limit of waiting reads. A dropped one is requested again by its tab. */
const MAX_WAITING = 100;

/** A controller that aborts with the signal. */
function until(signal: AbortSignal): AbortController {
  const controller = new AbortController();
  if (signal.aborted) controller.abort();
  else signal.addEventListener("abort", () => controller.abort(), { once: true, signal: controller.signal });
  return controller;
}

/** Limits of one message between tabs: cloning more would block both. */
export const PART_ITEMS = 250;
const PART_CHARACTERS = 256 << 10;

/** Splits a topic into parts. There is at least one, which may be empty. */
function* documentParts({ documents, cursor }: StoredTopic): Generator<Part, void> {
  yield* parts(documents, (some) => ({ documents: some }), { cursor });
}

/** Splits a conversation into parts. */
function* messageParts({ messages, ...end }: ConversationState): Generator<Part, void> {
  yield* parts(messages, (some) => ({ messages: some }), end);
}

function* parts<T>(
  items: readonly T[],
  wrap: (some: T[]) => Part,
  end: NonNullable<Part["end"]>,
): Generator<Part, void> {
  let some: T[] = [];
  let size = 0;
  for (const item of items) {
    const length = JSON.stringify(item).length;
    if (some.length === PART_ITEMS || (some.length > 0 && size + length > PART_CHARACTERS)) {
      yield wrap(some);
      some = [];
      size = 0;
    }
    some.push(item);
    size += length;
  }
  yield { ...wrap(some), end };
}
