import { defineApp, runSummaries } from "@khala/server";
import { aiSdk } from "@khala/server/engines";
import { modelOf } from "./model.ts";

/** A chat with the model that MODEL names. */
export default defineApp({
  models: [runSummaries],
  engine: aiSdk(modelOf(), { system: ({ sender }) => `You talk to ${sender}. Be brief.` }),
});
