export { artifactKey, type Keyed, murmur2, partitionOf, recordKey } from "./board_key.ts";
export { canonicalJson, type JsonValue } from "./canonical.ts";
export {
  ERRORS,
  type ErrorCode,
  type ErrorDetails,
  type ErrorMeaning,
  KhalaError,
  type StaleTopicDetail,
} from "./errors.ts";
export { INEXACT_INTEGER, inexactInteger, inexactIntegerError, inexactNumber } from "./exact_integers.ts";
export { foldMessages } from "./fold_messages.ts";
export {
  CONV_ID,
  CONVERSATION_CHANNEL,
  OPS_CHANNEL,
  SCOPES,
  SYNC_CHANNEL,
  topicForConv,
  workScope,
} from "./names.ts";
export * as phoenix from "./phoenix.ts";
export type { Wire } from "./wire.ts";
