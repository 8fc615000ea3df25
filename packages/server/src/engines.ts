export { type AiSdkOptions, aiSdk, type ModelChoice } from "./conversations/engines/ai_sdk.ts";
export type {
  ConversationKey,
  Engine,
  EngineEvent,
  EngineFactory,
  Resume,
  Turn,
  TurnFile,
} from "./conversations/engines/engine.ts";
export { type HttpEngineOptions, http } from "./conversations/engines/http.ts";
export {
  type EngineFailureCode,
  PublicError,
} from "./conversations/engines/public_error.ts";
export { type Script, type ScriptedOptions, type Step, scripted } from "./conversations/engines/scripted.ts";
export { testTurn } from "./conversations/turns/open_turn.ts";
export { defineEngine, type EngineDefinition, type ParamsSchema } from "./conversations/turns/params.ts";
