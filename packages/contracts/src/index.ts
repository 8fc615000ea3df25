export { canonicalJson, type JsonValue } from "./canonical.ts";
export {
  ERRORS,
  type ErrorCode,
  type ErrorDetails,
  type ErrorMeaning,
  KhalaError,
  type StaleTopicDetail,
} from "./errors.ts";
export { SCOPES, SYNC_CHANNEL } from "./names.ts";
export * as phoenix from "./phoenix.ts";
