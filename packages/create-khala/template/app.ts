import { agent, defineApp, defineModel, defineStream, tombstone } from "@khala/server";
import { scripted } from "@khala/server/engines";
import { z } from "zod";

/** Events of a job. `khala append job <id> <type> <data>` appends one, and so does `POST /app/v1/jobs/<id>/events`. */
const jobs = defineStream({
  kind: "job",
  path: "/app/v1/jobs",
  scope: "jobs:write",
  events: {
    "job.started": z.object({ title: z.string().min(1) }),
    "job.step": z.object({ name: z.string() }),
    "job.done": z.object({}),
    "job.deleted": z.object({}),
  },
});

/** What a screen shows of a job. */
interface Progress {
  readonly title: string;
  readonly steps: readonly string[];
  readonly done: boolean;
}

/** Events become documents: one per job, `progress:<id>`. Every client that may see it follows it live. */
const progress = defineModel({
  topic: "app.progress",
  prefix: "progress",
  streams: [jobs],
  project(before: Progress | null, event) {
    const document = before ?? { title: event.streamId, steps: [], done: false };
    switch (event.type) {
      case "job.started":
        return { ...document, title: event.data.title };
      case "job.step":
        return { ...document, steps: [...document.steps, event.data.name] };
      case "job.done":
        return { ...document, done: true };
      case "job.deleted":
        return tombstone;
    }
  },
});

/** What is published on the blackboard, by type. */
const schemas = {
  Note: z.object({ text: z.string() }),
  Summary: z.object({ words: z.number() }),
};

/** Works on every `Note` that is published; what it returns is published again, for other agents to take up. */
const summariser = agent("summariser", {
  schemas,
  consumes: "Note",
  run({ artifact }) {
    const words = artifact.payload.text.split(/\s+/).filter(Boolean).length;
    return { type: "Summary", payload: { words } };
  },
});

export default defineApp({
  models: [progress],
  // Answers in conversations without a model. `aiSdk(model)` of the same place takes its place.
  engine: scripted(),
  agents: [summariser],
  schemas,
});
