import type { StreamDefinition } from "./runtime/stream.ts";
import { runs, workers } from "./runtime/streams.ts";
import type { Model } from "./sync/model.ts";
import { Models } from "./sync/model.ts";

/** What a user builds on Khala, in one value. */
export interface AppDefinition {
  /** Projections: how authority events become documents. */
  readonly models: readonly Model[];
}

/** An app, checked. */
export interface App {
  readonly models: Models;
  /** Every kind of stream that can be appended to. */
  readonly streams: readonly StreamDefinition[];
}

/** Declares an app. */
export function defineApp(definition: AppDefinition): App {
  const streams = new Map<string, StreamDefinition>([runs, workers].map((stream) => [stream.kind, stream]));
  for (const stream of definition.models.flatMap((model) => model.streams)) {
    const known = streams.get(stream.kind);
    if (known && known !== stream) throw new TypeError(`Two streams have the kind "${stream.kind}".`);
    streams.set(stream.kind, stream);
  }
  return { models: new Models(definition.models), streams: [...streams.values()] };
}
