import type { JsonObject } from "@bufbuild/protobuf";
import { SCOPES } from "@khala/contracts";
import type { AppJson, ExampleRequestJson } from "@khala/contracts/ops/v1";
import type { App } from "../app.ts";
import { sampleOf } from "../events/sample.ts";

/** The app for its operators: its models, agents and engine, and a request for each plane that works as it is. */
export function describeApp(app: App, { demo }: { readonly demo: boolean }): AppJson {
  return {
    demo,
    models: app.models.all.map(({ topic, streams }) => ({ topic, streams: streams.map(({ kind }) => kind) })),
    agents: app.agents.map(({ name, consumes }) => ({ name, consumes: [...consumes] })),
    engine: app.engine !== undefined,
    examples: [appendExample(app), messageExample(app), publishExample(app)].filter(
      (example) => example !== undefined,
    ),
  };
}

function appendExample({ models, streams }: App): ExampleRequestJson | undefined {
  for (const model of models.all)
    for (const { kind, events } of model.streams) {
      // The events of some models come from the server itself.
      const stream = streams.find((one) => one.kind === kind);
      const [event] = Object.entries(events);
      if (!stream || !event) continue;
      const [type, schema] = event;
      return {
        plane: "sync",
        name: type,
        path: `${stream.path}/hello/events`,
        body: { events: [{ event_id: "1", type, data: sampleOf(schema) as JsonObject }] },
        scope: stream.scope,
      };
    }
  return undefined;
}

function messageExample({ engine }: App): ExampleRequestJson | undefined {
  if (!engine) return undefined;
  return {
    plane: "conversations",
    name: "message",
    path: "/chat",
    body: { conv_id: "hello", message: "Hello!" },
    scope: SCOPES.chat,
  };
}

function publishExample({ agents, schemas }: App): ExampleRequestJson | undefined {
  const type = agents[0]?.consumes[0];
  if (type === undefined) return undefined;
  const schema = schemas[type];
  const payload = (schema ? sampleOf(schema) : { topic: "Otters" }) as JsonObject;
  return {
    plane: "blackboard",
    name: type,
    path: "/blackboard/v1/artifacts",
    body: { type, payload },
    scope: SCOPES.blackboardWrite,
  };
}
