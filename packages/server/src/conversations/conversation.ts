/** The id of a conversation. It is unique within its org. */
export interface ConversationId {
  readonly org: string;
  readonly convId: string;
}

/** A conversation from its creation to its deletion. The next one of the same id has a higher generation. */
export interface ConversationRef extends ConversationId {
  readonly generation: bigint;
  /** The name of its log. */
  readonly logName: string;
}

/** An id as the key of a map. A `conv_id` has no spaces. */
export function idKey({ org, convId }: ConversationId): string {
  return `${convId} ${org}`;
}

/** A conversation as the key of a map. */
export function refKey(ref: Omit<ConversationRef, "logName">): string {
  return `${ref.generation} ${idKey(ref)}`;
}
