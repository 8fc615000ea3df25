/** Who the demo and the tokens of development are made out to. */
export const DEV = { sub: "dev", org: "demo" } as const;

/** The topics of the demo app; a test holds them to it. Named here so that small commands need not load the server. */
export const DEMO_TOPICS = [
  "runtime.run_summaries",
  "runtime.codex_worker_summaries",
  "runtime.notifications",
  "lightning.control_plane",
  "blackboard.agents",
  "blackboard.correlations",
] as const;

/** Where each kind of stream of the demo app is appended to; a test holds them to it. */
export const DEMO_STREAMS: Readonly<Record<string, { readonly path: string; readonly scope: string }>> = {
  run: { path: "/runtime/v1/runs", scope: "runtime:write" },
  worker: { path: "/runtime/v1/workers", scope: "runtime:write" },
  invoice: { path: "/lightning/v1/invoices", scope: "runtime:write" },
};
