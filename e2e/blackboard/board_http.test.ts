import { randomUUID } from "node:crypto";
import type {
  AgentListJson,
  ApprovalListJson,
  ArtifactJson,
  ArtifactListJson,
  DeadLetterJson,
  LagResponseJson,
  PublishResponseJson,
  ReplayAllResponseJson,
  ReplayResponseJson,
} from "@khala/contracts/blackboard/v1";
import { agent, FatalError } from "@khala/server";
import { eventually } from "@khala/test-support/kit/eventually";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { BACKENDS, backendSettings } from "@khala/test-support/servers/backends";
import { type Answer, type BoardServer, startBoard } from "@khala/test-support/servers/board_server";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { z } from "zod";

interface Refusal {
  readonly error: {
    readonly code: string;
    readonly message: string;
    readonly field?: string;
    readonly items?: readonly { readonly index: number; readonly field: string }[];
  };
}

/** An agent that can do nothing with what is not ok. */
function fragile(name: string) {
  return agent(name, {
    consumes: `Fragile.${name}`,
    run({ artifact }) {
      const { ok } = artifact.payload as { ok?: boolean };
      if (!ok) throw new FatalError("This cannot be fixed by trying.");
      return { type: "Whole", payload: null };
    },
  });
}

const held = Promise.withResolvers<void>();
const agents = [
  agent("reviewer", {
    consumes: "Draft",
    run: ({ artifact }) => ({ type: "Review", payload: { of: artifact.id } }),
  }),
  // One for each test that needs dead letters, so that they do not mix.
  ...["picky", "edited", "chosen", "paged", "resumed"].map(fragile),
  agent("signer", { consumes: "Contract", approval: true, run: () => ({ type: "Signed", payload: 1 }) }),
  agent("sleeper", { consumes: "Nap", concurrency: 1, run: () => held.promise }),
  agent("lazy", { consumes: "Chore", run: () => ({ type: "Chore.done", payload: 1 }) }),
  agent("editor", { consumes: "Raw" }),
];
const schemas = { Draft: z.object({ text: z.string() }) };

describe.each(BACKENDS)("on %s", (backend) => {
  let database: TestDatabase;
  let server: BoardServer;
  beforeAll(async () => {
    database = await testDatabase();
    server = await startBoard(database.url, { agents, schemas }, await backendSettings(backend));
  });
  afterAll(async () => {
    held.resolve();
    await server[Symbol.asyncDispose]();
    await database[Symbol.asyncDispose]();
  });

  const codeOf = ({ status, body }: Answer<Refusal>) => ({ status, code: body.error.code });
  const draft = (more: object = {}) => ({ type: "Draft", payload: { text: "hi" }, ...more });
  const post = <T>(path: string, body?: unknown, token?: string) => server.post<T>(path, body, token);
  const outputsOf = (correlation: string, type: string) =>
    eventually(`a ${type} of ${correlation}`, async () => {
      const { body } = await server.get<ArtifactListJson>(`/artifacts?type=${type}&limit=1000`);
      const found = body.artifacts?.filter(({ correlation_id }) => correlation_id === correlation) ?? [];
      return found.length > 0 && found;
    });

  describe("POST /blackboard/v1/artifacts", () => {
    test("publishes an artifact, reads it back, and runs its task", async () => {
      const correlation_id = randomUUID();
      const answer = await post<PublishResponseJson>("/artifacts", draft({ correlation_id, tags: ["a"] }));
      expect(answer).toEqual({
        status: 201,
        body: { artifacts: [{ id: expect.any(String), status: "published" }] },
      });
      const { id } = answer.body.artifacts![0]!;
      expect(await server.get<ArtifactJson>(`/artifacts/${id}`)).toEqual({
        status: 200,
        body: expect.objectContaining({
          id,
          type: "Draft",
          payload: { text: "hi" },
          correlation_id,
          tags: ["a"],
          produced_by: "user:user-1",
          version: 1,
          org_id: "org-1",
          created_at: expect.stringMatching(/^\d{4}-.*Z$/),
        }),
      });
      const [review] = await outputsOf(correlation_id, "Review");
      expect(review).toMatchObject({ payload: { of: id }, produced_by: "agent:reviewer", depth: 1 });
      expect(await server.correlation(correlation_id, "done")).toMatchObject({ correlation_id, dead: "0" });
    });

    test("lists the artifact that began a correlation by its own id with the rest of it", async () => {
      const { body } = await post<PublishResponseJson>("/artifacts", draft());
      const id = body.artifacts![0]!.id!;
      const [review] = await outputsOf(id, "Review");
      const typesOf = async (query: string) => {
        const list = await server.get<ArtifactListJson>(`/artifacts?correlation_id=${id}${query}`);
        return list.body.artifacts?.map(({ type }) => type) ?? [];
      };
      expect(await typesOf("")).toEqual([review!.type, "Draft"]);
      expect(await typesOf("&type=Draft")).toEqual(["Draft"]);
      expect(await typesOf("&limit=1")).toEqual([review!.type]);
    });

    test("answers a thousand artifacts at once in their order", async () => {
      const ids = Array.from({ length: 1_000 }, () => randomUUID());
      const artifacts = ids.map((id) => ({ id, type: "Bulk", payload: null }));
      const first = await post<PublishResponseJson>("/artifacts", { artifacts });
      expect(first.status).toBe(201);
      expect(first.body.artifacts).toEqual(ids.map((id) => ({ id, status: "published" })));
      const again = await post<PublishResponseJson>("/artifacts", { artifacts: artifacts.slice(0, 2) });
      expect(again.body.artifacts!.map(({ status }) => status)).toEqual(["duplicate", "duplicate"]);
      const { body } = await server.get<ArtifactListJson>("/artifacts?type=Bulk&limit=3");
      expect(body.artifacts).toHaveLength(3);
    });

    test("refuses a known id and version with other content as a conflict", async () => {
      const id = randomUUID();
      await server.publish({ id, type: "Note", payload: 1 });
      expect(codeOf(await post("/artifacts", { id, type: "Note", payload: 2 }))).toEqual({
        status: 409,
        code: "artifact_conflict",
      });
      await server.publish({ id, type: "Note", payload: 2, version: 2 });
      const { body } = await server.get<ArtifactJson>(`/artifacts/${id}`);
      expect(body).toMatchObject({ payload: 2, version: 2 });
    });

    test("publishes none if one is wrong, and names each wrong one", async () => {
      const good = randomUUID();
      const artifacts = [draft({ id: good }), draft({ payload: { text: 7 } }), draft({ colour: "red" })];
      const { status, body } = await post<Refusal>("/artifacts", { artifacts });
      expect(status).toBe(400);
      expect(body.error).toMatchObject({ code: "invalid_request", field: "artifacts[1].payload.text" });
      expect(body.error.items?.map(({ index, field }) => [index, field])).toEqual([
        [1, "payload.text"],
        [2, "colour"],
      ]);
      expect(body.error).not.toHaveProperty("stack");
      expect((await server.get(`/artifacts/${good}`)).status).toBe(404);
    });

    test.each([
      ["no type", { payload: 1 }, "type"],
      ["no payload", { type: "Note" }, "payload"],
      ["a payload that does not fit", draft({ payload: { text: null } }), "payload.text"],
      ["an id that is no UUID", draft({ id: "x" }), "id"],
      ["a time that is none", draft({ not_before: "soon" }), "not_before"],
      ["a field that does not exist", draft({ colour: "red" }), "colour"],
      ["null in a list", { artifacts: [draft(), null] }, "artifacts[1]"],
      ["an empty list", { artifacts: [] }, "artifacts"],
      ["too many", { artifacts: Array(1_001).fill(draft()) }, "artifacts"],
    ])("%s is a 400 that names the field", async (_, body, field) => {
      const answer = await post<Refusal>("/artifacts", body);
      expect(answer.status).toBe(400);
      expect(answer.body.error).toMatchObject({ code: "invalid_request", field });
    });

    test("schedules an artifact for later", async () => {
      const not_before = new Date(Date.now() + 3_600_000).toISOString();
      const answer = await post<PublishResponseJson>("/artifacts", draft({ not_before }));
      expect(answer.body.artifacts![0]!.status).toBe("scheduled");
      expect((await server.get(`/artifacts/${answer.body.artifacts![0]!.id}`)).status).toBe(404);
    });

    test("refuses a body over the limit", async () => {
      const answer = await post<Refusal>("/artifacts", { type: "Big", payload: "x".repeat(1 << 20) });
      expect(codeOf(answer)).toEqual({ status: 413, code: "payload_too_large" });
    });
  });

  describe("access", () => {
    test("refuses every request without a token", async () => {
      const response = await fetch(`${server.url}/blackboard/v1/artifacts`);
      expect(response.status).toBe(401);
    });

    test("reading, writing and pausing each need their scope", async () => {
      const reader = await server.token({ scopes: ["blackboard:read"] });
      const writer = await server.token({ scopes: ["blackboard:write"] });
      const missing = { status: 403, code: "missing_scope" };
      expect(codeOf(await post("/artifacts", draft(), reader))).toEqual(missing);
      expect(codeOf(await post("/agents/editor/claim", { worker: "w" }, reader))).toEqual(missing);
      expect(codeOf(await server.get("/artifacts", writer))).toEqual(missing);
      expect(codeOf(await server.get("/dead-letters/picky", writer))).toEqual(missing);
      expect(codeOf(await post("/agents/lazy/pause"))).toEqual(missing);
      expect(codeOf(await post("/agents/lazy/cancel"))).toEqual(missing);
      expect(codeOf(await post("/correlations/c/pause", {}, reader))).toEqual(missing);
    });

    test("shows nothing of another org", async () => {
      const { correlation_id, letters } = await deadLetters("picky", 1);
      const { id: letter, task } = letters[0]!;
      const { id } = task;
      const other = await server.token({ org_id: "org-2" });
      const none = { status: 404, code: "not_found" };
      expect(codeOf(await server.get(`/artifacts/${id}`, other))).toEqual(none);
      expect(codeOf(await server.get(`/correlations/${correlation_id}`, other))).toEqual(none);
      expect(codeOf(await server.get(`/dead-letters/picky/${letter}`, other))).toEqual(none);
      expect(codeOf(await post(`/dead-letters/picky/${letter}/replay`, {}, other))).toEqual(none);
      expect((await server.get<ArtifactListJson>("/artifacts?limit=1000", other)).body.artifacts).toEqual([]);
      const { body } = await server.get<{ dead_letters: [] }>("/dead-letters/picky", other);
      expect(body.dead_letters).toEqual([]);
    });

    test("answers 404 for a missing resource", async () => {
      const none = { status: 404, code: "not_found" };
      const operator = await server.token({
        scopes: ["ops", "platform", "blackboard:write", "blackboard:read", "blackboard:work:*"],
      });
      for (const path of [
        "/artifacts/nothing",
        `/artifacts/${randomUUID()}`,
        "/correlations/nothing",
        "/dead-letters/nobody",
        "/dead-letters/picky/nothing",
        `/dead-letters/picky/${randomUUID()}`,
        "/dead-letters/no%20body",
      ])
        expect([path, codeOf(await server.get(path))]).toEqual([path, none]);
      for (const [path, body] of [
        ["/agents/nobody/pause", {}],
        ["/agents/nobody/resume", {}],
        ["/agents/nobody/cancel", {}],
        ["/agents/nobody/claim", { worker: "w" }],
        ["/dead-letters/nobody/replay", {}],
        [`/dead-letters/picky/${randomUUID()}/replay`, {}],
        [`/approvals/${randomUUID()}`, { approved: true }],
        ["/approvals/nothing", { approved: true }],
        [`/claims/${randomUUID()}/heartbeat`, {}],
        ["/claims/nothing/settle", {}],
      ] as const)
        expect([path, codeOf(await post(path, body, operator))]).toEqual([path, none]);
    });
  });

  /** Makes dead letters of an agent, in a correlation of their own. */
  async function deadLetters(agent: string, count: number) {
    const correlation_id = randomUUID();
    const one = { type: `Fragile.${agent}`, payload: {}, correlation_id };
    await post("/artifacts", { artifacts: Array(count).fill(one) });
    const letters = await eventually(`${count} dead letters`, async () => {
      const { body } = await server.get<{ dead_letters?: Required<DeadLetterJson>[] }>(
        `/dead-letters/${agent}?correlation_id=${correlation_id}`,
      );
      return body.dead_letters?.length === count && body.dead_letters;
    });
    return { correlation_id, letters };
  }

  describe("dead letters", () => {
    test("have the error and the task, and can be replayed once, edited", async () => {
      const { correlation_id, letters } = await deadLetters("edited", 1);
      const [letter] = letters;
      const { id } = letter!.task;
      expect(letter).toMatchObject({
        agent: "edited",
        attempts: 1,
        failure: { class: "FatalError", message: "This cannot be fixed by trying.", kind: "fatal" },
        task: { id, artifacts: [{ id, payload: {} }] },
      });
      expect((await server.get(`/dead-letters/edited/${letter!.id}`)).body).toEqual(letter);
      expect(await server.correlation(correlation_id, "failed")).toMatchObject({ dead: "1" });

      const path = `/dead-letters/edited/${letter!.id}/replay`;
      const replays = await Promise.all(
        [1, 2, 3].map(() => post<ReplayResponseJson>(path, { payload: { ok: true } })),
      );
      expect(replays.map(({ status }) => status)).toEqual([202, 202, 202]);
      expect(replays.map(({ body }) => body.status).toSorted()).toEqual([
        "already_replayed",
        "already_replayed",
        "replayed",
      ]);
      expect(new Set(replays.map(({ body }) => body.replay_id)).size).toBe(1);
      expect(await outputsOf(correlation_id, "Whole")).toHaveLength(1);
    });

    test("are replayed by their ids, or by their correlation", async () => {
      const { correlation_id, letters } = await deadLetters("chosen", 3);
      const one = await post<ReplayAllResponseJson>("/dead-letters/chosen/replay", { ids: [letters[0]!.id] });
      expect(one).toEqual({ status: 202, body: { replayed: 1, already_replayed: 0 } });
      const none = await post<ReplayAllResponseJson>("/dead-letters/chosen/replay", { ids: [] });
      expect(none.body).toEqual({ replayed: 0, already_replayed: 0 });
      // The one that failed again is a dead letter of its own, or about to be.
      const rest = await post<ReplayAllResponseJson>("/dead-letters/chosen/replay", { correlation_id });
      expect(rest.body.replayed).toBeGreaterThanOrEqual(2);
    });

    test("come in pages, newest first", async () => {
      const { correlation_id, letters } = await deadLetters("paged", 8);
      const all = letters.map(({ id }) => id);
      const paged: string[] = [];
      let after: string | undefined;
      do {
        const query = `correlation_id=${correlation_id}&limit=2${after ? `&after=${encodeURIComponent(after)}` : ""}`;
        const { body } = await server.get<{ dead_letters: { id: string }[]; next?: string }>(
          `/dead-letters/paged?${query}`,
        );
        paged.push(...body.dead_letters.map(({ id }) => id));
        after = body.next;
      } while (after);
      expect(paged).toEqual(all);
    });
  });

  describe("agents and correlations", () => {
    const lazy = async () =>
      (await server.get<AgentListJson>("/agents")).body.agents!.find(({ name }) => name === "lazy")!;

    test("lists agents with the types they consume, and lag by partition", async () => {
      const { status, body } = await server.get<AgentListJson>("/agents");
      expect(status).toBe(200);
      expect(body.agents!.map(({ name }) => name).toSorted()).toEqual(
        agents.map(({ name }) => name).toSorted(),
      );
      expect(body.agents!.find(({ name }) => name === "reviewer")).toMatchObject({
        consumes: ["Draft"],
        state: "running",
        waiting: expect.stringMatching(/^\d+$/),
      });
      const lag = await server.get<LagResponseJson>("/lag");
      expect(lag.status).toBe(200);
      expect(lag.body.partitions!.map(({ reader }) => reader)).toContain("reviewer");
    });

    test("accepts an empty body with a JSON content type where no body is needed", async () => {
      const headers = {
        authorization: `Bearer ${await server.token({ scopes: ["platform"] })}`,
        "content-type": "application/json",
      };
      const path = `${server.url}/blackboard/v1/agents/lazy/resume`;
      expect((await fetch(path, { method: "POST", headers })).status).toBe(204);
    });

    test("a paused agent takes nothing until it is resumed", async () => {
      const operator = await server.token({ scopes: ["platform"] });
      expect((await post("/agents/lazy/pause", {}, operator)).status).toBe(204);
      expect((await lazy()).state).toBe("paused");
      const correlation_id = randomUUID();
      await server.publish({ type: "Chore", payload: 1, correlation_id });
      await eventually("the task waits", async () => (await lazy()).waiting === "1");
      expect((await post("/agents/lazy/resume", undefined, operator)).status).toBe(204);
      expect(await outputsOf(correlation_id, "Chore.done")).toHaveLength(1);
    });

    test("cancelling an agent makes dead letters of its waiting tasks, and later tasks run", async () => {
      const operator = await server.token({ scopes: ["platform"] });
      await post("/agents/lazy/pause", {}, operator);
      const correlation_id = randomUUID();
      await server.publish({ type: "Chore", payload: 1, correlation_id });
      await eventually("the task waits", async () => (await lazy()).waiting === "1");
      expect((await post("/agents/lazy/cancel", undefined, operator)).status).toBe(204);
      await post("/agents/lazy/resume", {}, operator);
      expect(await server.correlation(correlation_id, "failed")).toMatchObject({ dead: "1" });
      const later = randomUUID();
      await server.publish({ type: "Chore", payload: 2, correlation_id: later });
      expect(await outputsOf(later, "Chore.done")).toHaveLength(1);
    });

    test("a paused correlation waits, shows it, and continues when it is resumed", async () => {
      const correlation_id = randomUUID();
      await server.publish({ type: "Start", payload: null, correlation_id });
      expect((await post(`/correlations/${correlation_id}/pause`)).status).toBe(204);
      await server.publish({ type: "Chore", payload: 1, correlation_id });
      await eventually("its task is put aside", async () => {
        const { waits } = await server.correlation(correlation_id, "paused");
        return waits?.paused === "1";
      });
      const resumed = await post(`/correlations/${correlation_id}/resume`);
      expect(resumed).toMatchObject({ status: 202, body: { replayed: 0 } });
      expect(await outputsOf(correlation_id, "Chore.done")).toHaveLength(1);
      expect(await server.correlation(correlation_id, "done")).not.toHaveProperty("waits");
    });

    test("cancelling a correlation stops it, and resuming replays its dead letters", async () => {
      const { correlation_id } = await deadLetters("resumed", 1);
      expect((await post(`/correlations/${correlation_id}/cancel`)).status).toBe(204);
      expect(await server.correlation(correlation_id, "cancelled")).toBeTruthy();
      const resumed = await post<{ replayed: number }>(`/correlations/${correlation_id}/resume`);
      expect(resumed).toEqual({ status: 202, body: { replayed: 1 } });
    });

    test("a held task runs once it is approved, and not if it is rejected", async () => {
      const correlation_id = randomUUID();
      const [yes, no] = [randomUUID(), randomUUID()];
      await server.publish({ id: yes, type: "Contract", payload: 1, correlation_id });
      await server.publish({ id: no, type: "Contract", payload: 1 });
      const waiting = await eventually("both wait", async () => {
        const { body } = await server.get<ApprovalListJson>("/approvals");
        return body.approvals!.length === 2 && body.approvals!;
      });
      const idOf = (artifact: string) => waiting.find(({ task }) => task!.artifacts![0]!.id === artifact)!.id;
      expect((await post(`/approvals/${idOf(no)}`, { approved: false, reason: "too dear" })).status).toBe(
        204,
      );
      expect((await post(`/approvals/${idOf(yes)}`, { approved: true })).status).toBe(204);
      expect(await outputsOf(correlation_id, "Signed")).toHaveLength(1);
      const { body } = await server.get<ApprovalListJson>("/approvals");
      expect(body.approvals).toEqual([]);
    });
  });
});
