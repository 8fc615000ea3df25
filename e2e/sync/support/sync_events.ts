import { randomUUID } from "node:crypto";
import type { JsonValue } from "@bufbuild/protobuf";
import { ownedId } from "@khala/test-support/clients/witness";
import type { Append } from "../../../packages/server/src/events/authority.ts";
import { invoices, runs, type StreamDefinition, workers } from "../../../packages/server/src/index.ts";
import { SUBJECTS } from "./sync_commands.ts";

/** Orgs that documents belong to. */
export const ORGS = ["acme", "zeta"] as const;

type Kind = { stream: StreamDefinition; types: readonly string[] };
const RUNS: Kind = {
  stream: runs,
  types: [
    "run.started",
    "run.step",
    "run.shared",
    "run.shared",
    "run.completed",
    "run.failed",
    "run.deleted",
  ],
};
const WORKERS: Kind = {
  stream: workers,
  types: ["worker.registered", "worker.heartbeat", "worker.status", "worker.retired"],
};
const INVOICES: Kind = {
  stream: invoices,
  types: ["invoice.created", "invoice.payment_started", "invoice.failed", "invoice.settled"],
};
const KINDS = [RUNS, RUNS, RUNS, WORKERS, INVOICES];

/** What an append command stands for. There are few streams, mostly runs, so that much happens to the same documents. */
export function appendOf(stream: number, event: number, audience: readonly string[], large: boolean): Append {
  const kind = KINDS[stream % KINDS.length]!;
  const org = ORGS[Math.floor(stream / 5) % ORGS.length]!;
  const actor = SUBJECTS[Math.floor(stream / 10) % 2]!;
  const type = kind.types[Math.floor(event / 3) % kind.types.length]!;
  const events = [{ event_id: randomUUID(), type, data: dataOf(type, audience, large) }];
  return { stream: kind.stream, streamId: ownedId(org, actor, kind.stream.kind), events, org, actor };
}

function dataOf(type: string, audience: readonly string[], large: boolean): JsonValue {
  switch (type) {
    case "run.started":
      return { title: large ? "large".repeat(300) : "small", audience: [...audience] };
    case "run.shared":
      return { audience: [...audience] };
    case "run.step":
      return { name: large ? "large".repeat(300) : "small" };
    case "run.failed":
      return { error: "no luck" };
    case "worker.status":
      return { status: large ? "busy" : "idle" };
    case "invoice.created":
      return { amount_msat: "1000" };
    case "invoice.payment_started":
      return { payment_hash: "aa" };
    case "invoice.failed":
      return { reason: "no route" };
    case "invoice.settled":
      return { preimage: "bb" };
    default:
      return {};
  }
}
