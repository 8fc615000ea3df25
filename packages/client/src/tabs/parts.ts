import type { ConversationState } from "../conversation/source.ts";
import type { StoredTopic } from "../storage/storage.ts";
import type { Part } from "./messages.ts";

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
