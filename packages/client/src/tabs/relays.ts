import type { ConversationSource, ConversationState } from "../conversation/source.ts";
import type { Cursor, StoredTopic } from "../storage/storage.ts";
import { reaches } from "../sync/cursor.ts";
import type { TopicSource } from "../sync/source.ts";
import { errorWire, type LeaderMessage, type Part } from "./messages.ts";

/** Something that other tabs follow through this one: what comes is posted until the signal aborts. */
export interface Relay {
  /** How it stands, for a tab that comes later. */
  standing(): LeaderMessage | undefined;
  /** Takes one look, as soon as there is something to see. Nothing to hand over: whoever asks is as far as this tab. */
  look(position: Cursor | string | undefined, signal: AbortSignal, seen: LastCursors): void;
}

type LastCursors = (parts: Iterator<Part, void> | undefined) => void;
type Post = (message: LeaderMessage) => void;

/** Passes on a topic, each batch with the positions that it lies between. */
export function topicRelay(topics: TopicSource, name: string, post: Post, signal: AbortSignal): Relay {
  const subject = { plane: "sync", name } as const;
  let standing: LeaderMessage | undefined;
  let at: Cursor | undefined;
  const sink = {
    position: () => undefined,
    async replace(_documents: unknown, cursor: Cursor) {
      // The first time it is what those who asked see anyway.
      if (at) post({ type: "replaced", ...subject });
      at = cursor;
    },
    async apply(updates: Parameters<TopicSinkOf["apply"]>[0], through: Cursor) {
      if (at) post({ type: "batch", name, batch: { from: at, updates, through } });
      else post({ type: "replaced", ...subject });
      at = through;
    },
    phase(...[phase, error]: Parameters<TopicSinkOf["phase"]>) {
      standing = { type: "phase", name, phase, ...errorWire(error) };
      post(standing);
    },
  };
  topics.follow(name, sink, signal);
  return {
    standing: () => standing,
    look(position, asked, seen) {
      const once = until(asked);
      const look = {
        position: () => undefined,
        async replace(...[documents, cursor]: Parameters<TopicSinkOf["replace"]>) {
          if (once.signal.aborted) return;
          once.abort();
          const same = typeof position === "object" && reaches(position, cursor);
          seen(same ? undefined : documentParts({ documents, cursor }));
        },
        apply: async () => {},
        phase() {},
      };
      topics.follow(name, look, once.signal);
    },
  };
}

type TopicSinkOf = Parameters<TopicSource["follow"]>[1];
type ConversationSinkOf = Parameters<ConversationSource["follow"]>[1];

/** Passes on a conversation, frame by frame. */
export function conversationRelay(
  conversations: ConversationSource,
  name: string,
  post: Post,
  signal: AbortSignal,
): Relay {
  const subject = { plane: "conversation", name } as const;
  let standing: LeaderMessage | undefined;
  /** Between a resync and its snapshot what is shown is the past, and nobody is told of it: these wait. */
  let resyncing = false;
  let waiting: (() => void)[] = [];
  let following = false;
  const settle = () => {
    resyncing = false;
    for (const look of waiting.splice(0)) look();
  };
  const sink: ConversationSinkOf = {
    position: () => undefined,
    restore() {
      // What is there when the following begins is what those who asked see anyway.
      if (following) post({ type: "replaced", ...subject });
      settle();
    },
    frame(frame) {
      post({ type: "frame", name, frame });
      if (frame.type === "resync") resyncing = true;
      if (frame.type === "snapshot") settle();
    },
    health(live, error) {
      standing = { type: "health", name, live, ...errorWire(error) };
      post(standing);
    },
  };
  conversations.follow(name, sink, signal);
  following = true;

  function look(position: Cursor | string | undefined, asked: AbortSignal, seen: LastCursors): void {
    if (asked.aborted) return;
    if (resyncing) {
      waiting = [...waiting.slice(-MAX_WAITING), () => look(position, asked, seen)];
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
    // What there is was told by now. Where there is nothing yet, what comes is all there is.
    once.abort();
    seen(parts);
  }
  return { standing: () => standing, look };
}

/** More tabs than this do not wait at once; the oldest question is then asked again by its tab. */
const MAX_WAITING = 100;

/** Aborts when the signal does, or before. */
function until(signal: AbortSignal): AbortController {
  const controller = new AbortController();
  if (signal.aborted) controller.abort();
  else signal.addEventListener("abort", () => controller.abort(), { once: true, signal: controller.signal });
  return controller;
}

/** A message between tabs has no more than this: cloning more would be felt by whoever types in either of them. */
export const PART_ITEMS = 250;
const PART_CHARACTERS = 256 << 10;

/** Cuts a topic into parts. There is always one, which may be empty. */
export function* documentParts({ documents, cursor }: StoredTopic): Generator<Part, void> {
  yield* parts(documents, (some) => ({ documents: some }), { cursor });
}

/** Cuts a conversation into parts. */
export function* messageParts({ messages, ...end }: ConversationState): Generator<Part, void> {
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
