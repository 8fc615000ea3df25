import { agent, defineApp, defineModel, runs, tombstone } from "@khala/server";
import { scripted } from "@khala/server/engines";

/** What a screen shows of a run. */
interface Progress {
  readonly title: string;
  readonly steps: readonly string[];
  readonly done: boolean;
}

/** Events become documents: one per run, `progress:<run_id>`. Every client that may see it follows it live. */
const progress = defineModel({
  topic: "app.progress",
  prefix: "progress",
  streams: [runs],
  project(before: Progress | null, event) {
    const document = before ?? { title: event.streamId, steps: [], done: false };
    const data = event.data as { title?: string; name?: string };
    switch (event.type) {
      case "run.started":
        return { ...document, title: data.title ?? document.title };
      case "run.step":
        return { ...document, steps: [...document.steps, data.name ?? ""] };
      case "run.completed":
        return { ...document, done: true };
      case "run.deleted":
        return tombstone;
      default:
        return document;
    }
  },
});

/** Works on every `Note` that is published; what it returns is published again, for other agents to take up. */
const summariser = agent("summariser", {
  consumes: "Note",
  run({ artifact }) {
    const { text = "" } = artifact.payload as { text?: string };
    return { type: "Summary", payload: { words: text.split(/\s+/).filter(Boolean).length } };
  },
});

export default defineApp({
  models: [progress],
  // Answers in conversations without a model. `aiSdk(model)` of the same place takes its place.
  engine: scripted(),
  agents: [summariser],
});
