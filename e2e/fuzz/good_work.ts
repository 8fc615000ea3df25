import { randomUUID } from "node:crypto";
import { until } from "../../packages/test-support/src/kit/until.ts";
import type { Finding } from "./http_fuzz.ts";
import { ORGS, type Tokens } from "./tokens.ts";

const DEADLINE_MS = 180_000;

/** Whether an artifact of every org still becomes what the agents make of it, and nothing else; answers the orgs where it does not. */
export async function checkGoodWork(url: string, tokens: Tokens): Promise<Finding[]> {
  const checked = await Promise.allSettled(ORGS.map((org) => checkOrg(url, org, tokens.of(org))));
  return checked.flatMap((result, i) =>
    result.status === "rejected"
      ? [{ what: `no good work for the org: ${(result.reason as Error).message}`, input: ORGS[i]! }]
      : [],
  );
}

async function checkOrg(url: string, org: string, token: string): Promise<void> {
  const correlation = randomUUID();
  const headers = { authorization: `Bearer ${token}`, "content-type": "application/json" };
  // The fuzzer may have paused agents.
  for (const agent of ["writer", "reviewer", "publisher"])
    await fetch(`${url}/blackboard/v1/agents/${agent}/resume`, { method: "POST", headers });
  const body = JSON.stringify({ type: "Topic", payload: { org }, correlation_id: correlation });
  // The fuzzer may have used up the org's rate or lag.
  await until(
    "the artifact is published",
    async () =>
      (await fetch(`${url}/blackboard/v1/artifacts`, { method: "POST", headers, body })).status === 201,
    { deadlineMs: DEADLINE_MS },
  );
  let types = "";
  await until(
    "its article is there",
    async () => {
      const query = new URLSearchParams({ correlation_id: correlation });
      const answer = await fetch(`${url}/blackboard/v1/artifacts?${query}`, { headers });
      const { artifacts = [] } = (await answer.json()) as { artifacts?: { type: string; org_id: string }[] };
      if (artifacts.some(({ org_id }) => org_id !== org)) throw new Error("it sees another org");
      types = artifacts.map(({ type }) => type).join();
      return ["Draft", "Review", "Article"].every((type) => types.includes(type));
    },
    { deadlineMs: DEADLINE_MS },
  ).catch((error: Error) => {
    throw new Error(`${error.message} (${types || "nothing"})`);
  });
}
