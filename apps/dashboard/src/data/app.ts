import type { KhalaClient } from "@khala/client";
import { useKhala } from "@khala/client/react";
import { useFetch } from "./fetch.ts";
import { completeAll } from "./wire.ts";

const MODEL = { topic: "", streams: [""] };
const AGENT = { name: "", consumes: [""] };
const EXAMPLE = { plane: "", name: "", path: "", body: {} as Readonly<Record<string, unknown>>, scope: "" };

/** A request that does something with the app. */
export type Example = Readonly<typeof EXAMPLE>;

/** What the server serves. */
export interface App {
  /** False until it is known. */
  readonly isKnown: boolean;
  readonly isDemo: boolean;
  readonly models: readonly Readonly<typeof MODEL>[];
  readonly agents: readonly Readonly<typeof AGENT>[];
  readonly hasEngine: boolean;
  readonly examples: readonly Example[];
}

const UNKNOWN: App = {
  isKnown: false,
  isDemo: false,
  models: [],
  agents: [],
  hasEngine: false,
  examples: [],
};

function readApp(wire: Awaited<ReturnType<KhalaClient["ops"]["app"]>>): App {
  return {
    isKnown: true,
    isDemo: wire.demo === true,
    models: completeAll(MODEL, wire.models),
    agents: completeAll(AGENT, wire.agents),
    hasEngine: wire.engine === true,
    examples: completeAll(EXAMPLE, wire.examples),
  };
}

/** The app of the server. It does not change while the server runs. */
export function useApp(): App {
  const { ops } = useKhala();
  return useFetch(["app"], async () => readApp(await ops.app())).data ?? UNKNOWN;
}
