import { canonicalJson } from "@khala/contracts";

/** How many documents the writers of a topic take turns at. */
export const KEYS = 1_000;

/** The org of everything that is written here. */
export const ORG = "org_bench";

/** The key of the nth document. */
export function docKey(n: number): string {
  return `run:${runId(n)}`;
}

/** The id of the nth run. */
export function runId(n: number): string {
  return `0197a1c2-7d3e-7b60-9f00-${n.toString(16).padStart(12, "0")}`;
}

/** A run summary of about 300 bytes, as the built-in model makes them. */
export function runSummary(n: number, version: number): object {
  const second = String(version % 60).padStart(2, "0");
  return {
    run_id: runId(n),
    owner: `user_${n % 97}`,
    title: `Review pull request ${4_000 + n} and answer the open questions`,
    status: "running",
    steps: version,
    last_step: `read src/module_${version % 40}.ts`,
    last_step_status: "done",
    started_at: "2026-07-01T09:30:00.000Z",
    updated_at: `2026-07-01T09:31:${second}.250Z`,
  };
}

/** The same as the text that is stored. */
export function runSummaryText(n: number, version: number): string {
  return canonicalJson(runSummary(n, version));
}
