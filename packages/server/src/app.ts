import type { EngineFactory } from "./conversations/engine.ts";
import type { StreamDefinition } from "./runtime/stream.ts";
import { runs, workers } from "./runtime/streams.ts";
import type { Model } from "./sync/model.ts";
import { Models } from "./sync/model.ts";

/** What a user builds on Khala, in one value. */
export interface AppDefinition {
  /** Projections: how authority events become documents. */
  readonly models: readonly Model[];
  /** What answers in conversations. Without one every run ends with an error that says so. */
  readonly engine?: EngineFactory;
}

/** An app, checked. */
export interface App {
  readonly models: Models;
  /** Every kind of stream that can be appended to. */
  readonly streams: readonly StreamDefinition[];
  readonly engine: EngineFactory;
}

/** Declares an app. */
export function defineApp(definition: AppDefinition): App {
  const streams = new Map<string, StreamDefinition>([runs, workers].map((stream) => [stream.kind, stream]));
  for (const stream of definition.models.flatMap((model) => model.streams)) {
    const known = streams.get(stream.kind);
    if (known && known !== stream) throw new TypeError(`Two streams have the kind "${stream.kind}".`);
    streams.set(stream.kind, stream);
  }
  const { models, engine = noEngine } = definition;
  return { models: new Models(models), streams: [...streams.values()], engine };
}

const noEngine: EngineFactory = () => ({
  // biome-ignore lint/correctness/useYield: it has nothing to say.
  async *run() {
    throw new Error(
      "This app has no engine. Give defineApp one, such as scripted() of @khala/server/engines.",
    );
  },
});
