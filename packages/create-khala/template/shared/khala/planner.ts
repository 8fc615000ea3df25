import { agent } from "@khala/server";
import { artifacts } from "./schemas.ts";

/** Works on every `Goal` that is published; what it returns is published too, for people and other agents. */
export const planner = agent("planner", {
  schemas: artifacts,
  consumes: "Goal",
  run({ artifact }) {
    const goal = artifact.payload.text;
    const steps = [`Say what "${goal}" means`, "Do the smallest part of it", "Show it to somebody"];
    return { type: "Plan", payload: { goal, steps } };
  },
});
