// An app with agents, for commands that load one from a file.
import { agent, defineApp, FatalError } from "@khala/server";

export default defineApp({
  models: [],
  agents: [
    agent("reviewer", {
      consumes: "Draft",
      run: ({ artifact }) => ({ type: "Review", payload: { of: artifact.id } }),
    }),
    agent("picky", {
      consumes: "Fragile",
      run({ artifact }) {
        if (Object(artifact.payload).ok !== true) throw new FatalError("This cannot be fixed by trying.");
        return { type: "Whole", payload: null };
      },
    }),
  ],
});
