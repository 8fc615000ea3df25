import type { WorkerRegisteredJson, WorkerStatusJson, WorkerSummaryJson } from "@khala/contracts/runtime/v1";
import { workers } from "../../events/streams.ts";
import { defineModel } from "../model.ts";

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
        const { name, capabilities = [] } = event.data as WorkerRegisteredJson;
        return { ...worker, status: "registered", capabilities, ...(name !== undefined && { name }) };
      }
      case "worker.heartbeat":
        return { ...worker, last_heartbeat_at: event.at };
      case "worker.status":
        return { ...worker, status: (event.data as WorkerStatusJson).status ?? "" };
      case "worker.retired":
        return { ...worker, status: "retired" };
      default:
        return before;
    }
  },
});
