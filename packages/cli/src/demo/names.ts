/** Subject and org of the demo and of development tokens. */
export const DEV = { sub: "dev", org: "demo" } as const;

/** The topics of the demo app; a test compares them with it. Listed here so that small commands need not load the server. */
export const DEMO_TOPICS = [
  "runtime.run_summaries",
  "runtime.codex_worker_summaries",
  "runtime.notifications",
  "lightning.control_plane",
  "blackboard.agents",
  "blackboard.correlations",
] as const;

/** Path and scope of each kind of stream of the demo app; a test compares them with it. */
export const DEMO_STREAMS: Readonly<Record<string, { readonly path: string; readonly scope: string }>> = {
  run: { path: "/runtime/v1/runs", scope: "runtime:write" },
  worker: { path: "/runtime/v1/workers", scope: "runtime:write" },
  invoice: { path: "/lightning/v1/invoices", scope: "runtime:write" },
};
