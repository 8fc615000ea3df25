import { testViewer } from "@khala/test-support/kit/viewer";
import { expect, test } from "vitest";
import type { Agent } from "./model/agent.ts";
import type { Artifact } from "./model/artifact.ts";
import type { Task } from "./model/task.ts";
import { openRights } from "./rights.ts";

const artifact = (produced_by: string) =>
  ({ id: "a", version: 1, org_id: "acme", correlation_id: "c", produced_by, created_at: "" }) as Artifact;

test("in a correlation whose oldest artifacts are out of reach, only an operator decides", async () => {
  const made = artifact("agent:planner");
  const found = [artifact("user:ada"), ...Array.from({ length: 20_000 }, () => made)].reverse();
  const rights = openRights({
    board: { get: async () => undefined, recent: async ({ limit }) => found.slice(0, limit) },
    schedule: { first: async () => undefined },
    agents: [{ name: "merger", options: { approval: { not: "requester" } } } as unknown as Agent],
    isKnown: async () => true,
  });
  const task = { agent: "merger", artifacts: [made] } as unknown as Task;
  const decide = (scopes: string[]) =>
    rights.requireDecider(testViewer({ org: "acme", subject: "ada", scopes }), task);
  await expect(decide(["blackboard:write"])).rejects.toMatchObject({ code: "missing_scope" });
  await decide(["blackboard:write", "ops"]);
});
