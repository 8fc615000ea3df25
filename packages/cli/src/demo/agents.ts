import { setTimeout as pause } from "node:timers/promises";
import { agent, FatalError } from "@khala/server";

/** Delays, so that the work can be watched. */
const WRITE_MS = 900;
const READ_MS = 700;
const SEARCH_MS = 500;

const text = (payload: unknown, field: string) => String(Object(payload)[field] ?? "");

/** Writes a draft about a topic. */
const writer = agent("writer", {
  consumes: "Topic",
  async run({ artifact }, signal) {
    await pause(WRITE_MS, undefined, { signal });
    const topic = text(artifact.payload, "topic");
    const draft = `${topic}: what it is, why it matters, and where to begin.`;
    return { type: "Draft", payload: { topic, text: draft, words: draft.split(" ").length } };
  },
});

/** Reviews drafts. Some first attempts fail, as calls to a model do, and are retried. */
const reviewer = agent("reviewer", {
  consumes: "Draft",
  retry: { attempts: 4, base: 500 },
  async run({ artifact, attempt }, signal) {
    await pause(READ_MS, undefined, { signal });
    if (attempt === 1 && chance(artifact.id, 3)) throw new Error("The model did not answer in time.");
    return { type: "Review", payload: { verdict: "good", draft: artifact.id } };
  },
});

/** Finds a picture. Some drafts have none, and become dead letters that can be replayed. */
const illustrator = agent("illustrator", {
  consumes: "Draft",
  async run({ artifact, idempotencyKey }, signal) {
    await pause(SEARCH_MS, undefined, { signal });
    if (chance(artifact.id, 7) && idempotencyKey.split(":").length < 3)
      throw new FatalError("No picture was found. Replay the task, or use another topic.");
    return { type: "Picture", payload: { alt: text(artifact.payload, "topic") } };
  },
});

/** Publishes when a draft was reviewed. */
const publisher = agent("publisher", {
  consumes: ["Draft", "Review"],
  join: { by: "correlation_id", types: ["Draft", "Review"], within: 600_000 },
  run: ({ artifacts: [draft] }) => ({ type: "Article", payload: draft!.payload, tags: ["published"] }),
});

/** True for one id in `n`. Deterministic, so that the demo is easy to follow. */
function chance(id: string, n: number): boolean {
  return Number.parseInt(id.slice(-6), 16) % n === 0;
}

/** The agents of the demo. */
export const demoAgents = [writer, reviewer, illustrator, publisher];
