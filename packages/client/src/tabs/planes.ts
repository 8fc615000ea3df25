import type { ConversationSource } from "../conversation/source.ts";
import type { TopicSource } from "../sync/source.ts";

/**
 * What tabs need of the sync plane: a source that can be changed, and that it is a source itself. Whoever follows it without a
 * position gets all it has by `swap`, then each change after it was applied.
 */
export interface SharedTopics extends TopicSource {
  /** Undefined: changes come from nowhere until there is a source. Topics go on from their own positions. */
  setSource(source: TopicSource | undefined): void;
  /** Whether this tab writes to the storage. */
  setStoring(storing: boolean): void;
}

/** The same of the conversations: a follower without a position gets `restore`, then each frame. */
export interface SharedConversations extends ConversationSource {
  setSource(source: ConversationSource | undefined): void;
  setStoring(storing: boolean): void;
}
