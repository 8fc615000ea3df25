import { defineApp, runSummaries } from "@khala/server";
import { tool } from "@langchain/core/tools";
import { MessagesAnnotation, START, StateGraph } from "@langchain/langgraph";
import { ToolNode, toolsCondition } from "@langchain/langgraph/prebuilt";
import { ChatOpenAI } from "@langchain/openai";
import { z } from "zod";
import { langGraph } from "./langgraph.ts";

const weather = tool(({ city }) => `It is 4 °C in ${city}.`, {
  name: "weather",
  description: "The weather in a city.",
  schema: z.object({ city: z.string() }),
});

// OPENAI_API_KEY and, for a server that speaks its API, OPENAI_BASE_URL.
const { MODEL = "gpt-5-mini", OPENAI_BASE_URL: baseURL } = process.env;
const model = new ChatOpenAI({ model: MODEL, configuration: { ...(baseURL && { baseURL }) } }).bindTools([
  weather,
]);

/** Model, then tools, then model, until no tool is called. */
const graph = new StateGraph(MessagesAnnotation)
  .addNode("model", async ({ messages }) => ({ messages: [await model.invoke(messages)] }))
  .addNode("tools", new ToolNode([weather]))
  .addEdge(START, "model")
  .addConditionalEdges("model", toolsCondition)
  .addEdge("tools", "model")
  .compile();

export default defineApp({ models: [runSummaries], engine: langGraph(graph) });
