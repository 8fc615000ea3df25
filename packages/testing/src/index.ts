export { ManualClock } from "./manual_clock.ts";
export { type AgentRun, type TestedAgent, testAgent } from "./test_agent.ts";
export { type BoardApp, type TestBoard, testBoard } from "./test_board.ts";
export { type Answer, type SayOptions, type TestedEngine, testEngine } from "./test_engine.ts";
export { type GivenEvent, type TestedDocument, type TestedModel, testModel } from "./test_model.ts";
export {
  startTestServer,
  type TestServer,
  type TestServerOptions,
  type TestTokenOptions,
} from "./test_server.ts";
