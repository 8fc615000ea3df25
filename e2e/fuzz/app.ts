import {
  agent,
  defineApp,
  FatalError,
  lightningControlPlane,
  notifications,
  runSummaries,
  workerSummaries,
} from "@khala/server";
import { demoAssistant } from "../../packages/cli/src/demo/assistant.ts";

const even = (id: string) => id.charCodeAt(id.length - 1) % 2 === 0;

/** The app that is fuzzed: every model, and agents that answer at once, retry, fail, join, wait for approval and work elsewhere. */
export default defineApp({
  models: [runSummaries, workerSummaries, notifications, lightningControlPlane],
  engine: demoAssistant,
  agents: [
    agent("writer", {
      consumes: "Topic",
      run: ({ artifact }) => ({ type: "Draft", payload: artifact.payload }),
    }),
    agent("reviewer", {
      consumes: "Draft",
      retry: { attempts: 3, base: 10 },
      run({ artifact, attempt }) {
        if (attempt === 1 && even(artifact.id)) throw new Error("The model did not answer in time.");
        return { type: "Review", payload: { draft: artifact.id } };
      },
    }),
    agent("failing", {
      consumes: "Unknown",
      run() {
        throw new FatalError("It always fails.");
      },
    }),
    agent("publisher", {
      consumes: ["Draft", "Review"],
      join: { by: "correlation_id", types: ["Draft", "Review"], within: 60_000 },
      run: ({ artifacts: [draft] }) => ({ type: "Article", payload: draft!.payload }),
    }),
    agent("editor", { consumes: "Article", approval: true }),
  ],
});
