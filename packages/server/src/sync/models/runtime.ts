import type { RunSummaryJson, WorkerSummaryJson } from "@khala/contracts/runtime/v1";
import type { AuthorityEvent } from "../../events/stream.ts";
import { runs, workers } from "../../events/streams.ts";
import { defineModel, tombstone } from "../model.ts";

/** `runtime.run_summaries`: one document per run, `run:<run_id>`. */
export const runSummaries = defineModel({
  topic: "runtime.run_summaries",
  prefix: "run",
  streams: [runs],
  // Not by updated_at: an index on it would be written with every step of a run. A filter would cost as much again.
  orderBy: ["-started_at"],
  audience: (run: RunSummaryJson) => run.audience,
  project(before: RunSummaryJson | null, event) {
    // The first event of a run may be a step: unknown fields are left out.
    const run = { ...(before ?? begun(event)), updated_at: event.at };
    switch (event.type) {
      case "run.started": {
        const { title, audience } = event.data;
        return { ...run, ...(title !== undefined && { title }), ...(audience && { audience }) };
      }
      case "run.step": {
        const { name, status } = event.data;
        const { last_step_status: _, ...rest } = run;
        return {
          ...rest,
          steps: (run.steps ?? 0) + 1,
          last_step: name ?? "",
          ...(status !== undefined && { last_step_status: status }),
        };
      }
      case "run.completed": {
        const { result } = event.data;
        return {
          ...run,
          status: "completed",
          finished_at: event.at,
          ...(result !== undefined && { result }),
        };
      }
      case "run.failed":
        return {
          ...run,
          status: "failed",
          finished_at: event.at,
          error: event.data.error ?? "",
        };
      case "run.stopped":
        return { ...run, status: "stopped", finished_at: event.at };
      case "run.shared":
        return { ...run, audience: event.data.audience ?? [] };
      case "run.deleted":
        return tombstone;
      default:
        return before;
    }
  },
});

function begun(event: AuthorityEvent): RunSummaryJson {
  return { run_id: event.streamId, owner: event.owner, status: "running", steps: 0, started_at: event.at };
}

/** `runtime.codex_worker_summaries`: one document per worker, `worker:<worker_id>`. */
export const workerSummaries = defineModel({
  topic: "runtime.codex_worker_summaries",
  prefix: "worker",
  streams: [workers],
  project(before: WorkerSummaryJson | null, event) {
    const known = before ?? {
      worker_id: event.streamId,
      owner: event.owner,
      status: "registered",
      registered_at: event.at,
    };
    const worker = { ...known, updated_at: event.at };
    switch (event.type) {
      case "worker.registered": {
        const { name, capabilities = [] } = event.data;
        return { ...worker, status: "registered", capabilities, ...(name !== undefined && { name }) };
      }
      case "worker.heartbeat":
        return { ...worker, last_heartbeat_at: event.at };
      case "worker.status":
        return { ...worker, status: event.data.status ?? "" };
      case "worker.retired":
        return { ...worker, status: "retired" };
      default:
        return before;
    }
  },
});
