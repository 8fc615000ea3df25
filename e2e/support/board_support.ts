/** Fixtures of the board's suite, for other tests: artifacts that say where they go, and agents that write down what they did. */
export {
  caughtUp,
  eventually,
  Heard,
  makeTestArtifact,
  makeTestTask,
  newId,
  newName,
  numbered,
  range,
  routeByTags,
  rules,
} from "../../packages/server/src/conformance/board_support.ts";
export {
  dead,
  done,
  failure,
  payloadOf,
  retry,
  start,
  Worker,
} from "../../packages/server/src/conformance/board_worker.ts";
