import { type EngineFactory, type Script, type Step, scripted, type Turn } from "@khala/server/engines";

/** Reading speed. */
const WORD_MS = 40;
const TOPIC_CHARACTERS = 80;

/**
 * The assistant of the demo, which needs no model: it makes a topic of each message, and publishes it for the agents on
 * the blackboard. The commands of docs/ENGINES.md work as well.
 */
export const demoAssistant: EngineFactory = (conversation) => {
  const writes = scripted({ script: handsOver, tokenMs: WORD_MS })(conversation);
  const talks = scripted({ tokenMs: WORD_MS })(conversation);
  const obeys = scripted()(conversation);
  return {
    resumable: true,
    run(turn, signal) {
      const { message } = turn;
      const engine = /^\s*\//.test(message)
        ? obeys
        : /\bweather\b|\d\s*[-+*]\s*\d/i.test(message)
          ? talks
          : writes;
      return engine.run(turn, signal);
    },
  };
};

/** The subject of a message, in a few words. */
export function topicOf(message: string): string {
  const [, about] = /\b(?:about|on)\s+(.+)/is.exec(message) ?? [];
  const words = (about ?? message)
    .replace(/\s+/g, " ")
    .replace(/[\s.?!]+$/, "")
    .trim();
  const topic = Array.from(words).slice(0, TOPIC_CHARACTERS).join("");
  return topic.charAt(0).toUpperCase() + topic.slice(1);
}

const handsOver: Script = async function* (turn) {
  const topic = topicOf(turn.message) || "Nothing in particular";
  // Its server was lost after the topic was published.
  const kept = (turn.resume?.messages ?? []).flatMap(({ parts = [] }) => parts);
  if (kept.some(({ tool }) => tool?.output !== undefined)) return yield* said("text_delta", next(topic));
  yield* said("reasoning_delta", `This is about “${topic}”. I pass it to the writing agents.`);
  yield { status: { text: "Publishing the topic" } };
  const input = { type: "Topic", payload: { topic }, correlation_id: turn.runId };
  const call = { tool_call_id: `${turn.runId}-publish`, tool: "publish" };
  yield { tool_call: { ...call, input } };
  const published = await publish(turn, input);
  if ("error" in published) {
    yield { tool_result: { ...call, error: published.error } };
    yield* said("text_delta", `The topic could not be published: ${published.error}`);
  } else {
    const output = { ...published, correlation_id: turn.runId };
    yield { tool_result: { ...call, output } };
    yield { custom: { name: "publish_result", data: output } };
    yield* said("text_delta", next(topic));
  }
  yield { run_finished: { reason: "stop" } };
};

async function publish(
  turn: Turn,
  draft: { type: string; payload: { topic: string }; correlation_id: string },
) {
  try {
    const [artifact] = await turn.publish([draft]);
    return { artifact_id: artifact?.id ?? "", status: artifact?.status ?? "" };
  } catch (error) {
    // Part of the answer; the run itself succeeds.
    return { error: turn.reportError(error) };
  }
}

function next(topic: string): string {
  return [
    `“${topic}” is on the blackboard.`,
    "The writer writes a draft.",
    "The reviewer reviews the draft. Sometimes it fails at first and is retried.",
    "The illustrator looks for a picture. If it finds none, the task becomes a dead letter.",
    "When the draft and its review are done, the publisher creates the article.",
  ].join(" ");
}

function* said(kind: "text_delta" | "reasoning_delta", text: string): Generator<Step> {
  for (const word of text.match(/\s*\S+/g) ?? []) {
    const delta = { text: word };
    yield kind === "text_delta" ? { text_delta: delta } : { reasoning_delta: delta };
  }
}
