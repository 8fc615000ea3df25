import { randomUUID } from "node:crypto";
import type {
  ApprovalListJson,
  ArtifactJson,
  ArtifactListJson,
  CorrelationStateJson,
} from "@khala/contracts/blackboard/v1";
import { eventually } from "@khala/test-support/kit/eventually";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { BACKENDS, backendSettings } from "@khala/test-support/servers/backends";
import { type BoardServer, startBoard } from "@khala/test-support/servers/board_server";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import app from "../../examples/review_pipeline/app.ts";

describe.each(BACKENDS)("on %s", (backend) => {
  let database: TestDatabase;
  let server: BoardServer;
  beforeAll(async () => {
    database = await testDatabase();
    server = await startBoard(
      database.url,
      { agents: app.agents, schemas: app.schemas },
      await backendSettings(backend),
    );
  });
  afterAll(async () => {
    await server[Symbol.asyncDispose]();
    await database[Symbol.asyncDispose]();
  });

  /** Publishes a pull request; resolves with what everything that comes of it has in common. */
  async function pullRequest(diff: string): Promise<string> {
    const correlation_id = randomUUID();
    await server.publish({ type: "PullRequest", payload: { title: "A change", diff }, correlation_id });
    return correlation_id;
  }

  async function artifactsOf(correlation: string): Promise<readonly ArtifactJson[]> {
    const { body } = await server.get<ArtifactListJson>("/artifacts?limit=1000");
    return (body.artifacts ?? []).filter(({ correlation_id }) => correlation_id === correlation);
  }

  const artifact = (correlation: string, type: string) =>
    eventually(`a ${type} of ${correlation}`, async () =>
      (await artifactsOf(correlation)).find((each) => each.type === type),
    );

  async function approvalsOf(correlation: string) {
    const { body } = await server.get<ApprovalListJson>("/approvals");
    return (body.approvals ?? []).filter(({ task }) => task?.artifacts?.[0]?.correlation_id === correlation);
  }

  test("merges what both reviewers approve once a person approves, and only once", async () => {
    const correlation = await pullRequest("+hello\n+world");
    expect((await artifact(correlation, "Verdict")).payload).toEqual({ merge: true, findings: [] });
    const [approval] = await eventually("the question", async () => {
      const found = await approvalsOf(correlation);
      return found.length > 0 && found;
    });
    expect(approval!.task).toMatchObject({ agent: "merger" });
    const types = (await artifactsOf(correlation)).map(({ type }) => type);
    expect(types.toSorted()).toEqual(["PullRequest", "SecurityFindings", "StyleFindings", "Verdict"]);

    for (const _ of ["once", "again"])
      expect((await server.post(`/approvals/${approval!.id}`, { approved: true })).status).toBe(204);
    const merged = await artifact(correlation, "Merged");
    expect(merged).toMatchObject({ produced_by: "agent:merger", depth: 3, payload: { by: "merger" } });
    await server.correlation(correlation, "done");
    expect((await artifactsOf(correlation)).filter(({ type }) => type === "Merged")).toHaveLength(1);
    expect(await approvalsOf(correlation)).toEqual([]);
  });

  test("collects the findings of both in the verdict, and asks nobody to merge", async () => {
    const correlation = await pullRequest(`+password = "1234"\n+${"x".repeat(130)}`);
    const { payload } = await artifact(correlation, "Verdict");
    expect(payload).toMatchObject({ merge: false });
    const { findings } = payload as { findings: string[] };
    expect(findings.toSorted()).toEqual([
      "a line is over 120 characters",
      'looks like a secret: password = "1234"',
    ]);
    expect(await server.correlation(correlation, "done")).toMatchObject({ artifacts: "4", dead: "0" });
    expect(await approvalsOf(correlation)).toEqual([]);
  });

  test("frequent reads never see the correlation as done before it is", async () => {
    const early: unknown[] = [];
    const follow = async (correlation: string) => {
      for (;;) {
        const { body } = await server.get<CorrelationStateJson>(`/correlations/${correlation}`);
        if (body.status !== "done") continue;
        if (body.artifacts !== "4") early.push(body);
        return;
      }
    };
    for (let round = 0; round < 8; round++)
      await Promise.all(
        Array.from({ length: 5 }, async () => {
          const correlation = await pullRequest("+password = 1");
          await Promise.all([follow(correlation), follow(correlation)]);
        }),
      );
    expect(early).toEqual([]);
  });

  test("a rejection ends it", async () => {
    const correlation = await pullRequest("+fine");
    const [approval] = await eventually("the question", async () => {
      const found = await approvalsOf(correlation);
      return found.length > 0 && found;
    });
    const no = { approved: false, reason: "not before the release" };
    expect((await server.post(`/approvals/${approval!.id}`, no)).status).toBe(204);
    expect((await server.post(`/approvals/${approval!.id}`, { approved: true })).status).toBe(409);
    expect((await artifactsOf(correlation)).some(({ type }) => type === "Merged")).toBe(false);
  });

  test("refuses something other than a pull request before any work", async () => {
    const answer = await server.post("/artifacts", { type: "PullRequest", payload: { title: "No diff" } });
    expect(answer).toMatchObject({ status: 400, body: { error: { field: "payload.diff" } } });
  });
});
