import { defineApp, runSummaries } from "@khala/server";
import { scripted } from "@khala/server/engines";

/** What the server runs. Put `aiSdk(model)` of the same place where `scripted()` is, and a model answers. */
export default defineApp({ models: [runSummaries], engine: scripted({ tokenMs: 40 }) });
