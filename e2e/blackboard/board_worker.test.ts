import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { partitionOf, recordKey } from "@khala/contracts";
import type {
  AgentListJson,
  ArtifactListJson,
  HeartbeatResponseJson,
  SettleResponseJson,
} from "@khala/contracts/blackboard/v1";
import { agent } from "@khala/server";
import { eventually } from "@khala/test-support/kit/eventually";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { bareEnv } from "@khala/test-support/processes/bare_env";
import { BACKENDS, backendSettings } from "@khala/test-support/servers/backends";
import { BOARD_SCOPES, type BoardServer, startBoard } from "@khala/test-support/servers/board_server";
import { afterAll, beforeAll, describe, expect, type TestContext, test } from "vitest";
import { ROOT } from "../../scripts/run.ts";

const agents = [
  agent("editor", { consumes: "Raw", retry: { attempts: 3, base: 10 } }),
  agent("python", { consumes: "Text", retry: { attempts: 2, base: 10 } }),
];

/** Longer than a machine with much to do keeps a test from the next heartbeat. */
const LEASE_MS = 60_000;
const SHORT_LEASE_MS = 6_000;
const PARTITIONS = 3;
/** One of each partition. */
const KEYS = Array.from({ length: PARTITIONS }, (_, partition) => {
  for (let i = 0; ; i++)
    if (partitionOf(recordKey("org-1", `key-${i}`), PARTITIONS) === partition) return `key-${i}`;
});

const hasPython = spawnSync("python3", ["--version"]).status === 0;

function needsPython(context: TestContext): void {
  if (!hasPython && process.env.CI === "true")
    throw new Error("CI needs python3 to try examples/python_worker.");
  if (!hasPython) console.warn("SKIPPED: examples/python_worker, because python3 is not on PATH.");
  context.skip(!hasPython, "python3 is not on PATH");
}

describe.each(BACKENDS)("on %s", (backend) => {
  let database: TestDatabase;
  let settings: Record<string, string>;
  /** Two servers behind no load balancer: the tests choose. The leases that the second one gives are short. */
  let one: BoardServer;
  let two: BoardServer;
  beforeAll(async () => {
    database = await testDatabase();
    settings = {
      ...(await backendSettings(backend)),
      KAFKA_PARTITIONS: String(PARTITIONS),
      KHALA_BOARD_LEASE_MS: String(LEASE_MS),
    };
    one = await startBoard(database.url, { agents }, settings);
    two = await startBoard(
      database.url,
      { agents },
      { ...settings, KHALA_BOARD_LEASE_MS: String(SHORT_LEASE_MS) },
    );
  });
  afterAll(async () => {
    await Promise.all([one[Symbol.asyncDispose](), two[Symbol.asyncDispose]()]);
    await database[Symbol.asyncDispose]();
  });

  const outputsOf = (correlation: string, type: string) =>
    eventually(`a ${type} of ${correlation}`, async () => {
      const { body } = await one.get<ArtifactListJson>(`/artifacts?type=${type}&limit=1000`);
      const found = body.artifacts!.filter(({ correlation_id }) => correlation_id === correlation);
      return found.length > 0 && found;
    });
  const settle = (server: BoardServer, claimId: string, body: object) =>
    server.post<SettleResponseJson & { error?: { code: string } }>(`/claims/${claimId}/settle`, body);

  describe("workers over HTTP", () => {
    test("claim on one server, send heartbeats and settle on the other", async () => {
      const correlation_id = randomUUID();
      const id = await one.publish({ type: "Raw", payload: { text: "hi" }, correlation_id });
      const claim = await one.claim("editor");
      expect(claim).toMatchObject({
        task: { id, agent: "editor", attempt: 1, artifacts: [{ id, payload: { text: "hi" } }] },
        idempotency_key: `${id}:editor@org-1`,
        lease_ms: LEASE_MS,
      });
      for (const [server, lease_ms] of [
        [two, SHORT_LEASE_MS],
        [one, LEASE_MS],
      ] as const) {
        const beat = await server.post<HeartbeatResponseJson>(`/claims/${claim.claim_id}/heartbeat`);
        expect(beat).toEqual({ status: 200, body: { lease_ms, cancelled: false } });
      }
      const outputs = [{ type: "Clean", payload: { text: "Hi." } }];
      for (const server of [two, one, two]) {
        const answer = await settle(server, claim.claim_id, { outputs });
        expect(answer).toEqual({ status: 200, body: { status: "done" } });
      }
      const clean = await outputsOf(correlation_id, "Clean");
      expect(clean).toMatchObject([{ produced_by: "agent:editor", depth: 1, payload: { text: "Hi." } }]);
      expect((await settle(one, claim.claim_id, {})).body.error?.code).toBe("lease_lost");
    });

    test("a waiting claim ends without a task when its token is revoked on another server", async () => {
      const token = await two.token({ sub: "worker" });
      const waiting = two.post<{ error?: { code: string } }>(
        "/agents/editor/claim",
        { worker: "w", wait_ms: 30_000 },
        token,
      );
      const { jti } = JSON.parse(Buffer.from(token.split(".")[1]!, "base64url").toString());
      const revocation = await fetch(`${one.url}/api/sync/revoke`, {
        method: "POST",
        headers: {
          authorization: `Bearer ${await one.token({ scopes: ["ops"] })}`,
          "content-type": "application/json",
        },
        body: JSON.stringify({ jti }),
      });
      expect(revocation.status).toBe(204);
      expect(await waiting).toMatchObject({ status: 401, body: { error: { code: "token_revoked" } } });
      const id = await one.publish({ type: "Raw", payload: 1 });
      const claim = await one.claim("editor");
      expect(claim.task.id).toBe(id);
      await settle(one, claim.claim_id, {});
    });

    test("a task is waiting until a worker claims it, and running from then on", async () => {
      // Each of these is offered at once: an agent has room for more than one.
      const ids = await Promise.all([1, 2].map((payload) => one.publish({ type: "Raw", payload })));
      const counted = (waiting: string, running: string) =>
        eventually(`${waiting} waiting and ${running} running`, async () => {
          const { body } = await one.get<AgentListJson>("/agents");
          const editor = body.agents!.find(({ name }) => name === "editor");
          return editor?.waiting === waiting && editor.running === running;
        });
      await counted("2", "0");
      const claims = [await one.claim("editor")];
      await counted("1", "1");
      claims.push(await two.claim("editor"));
      await counted("0", "2");
      for (const claim of claims) await settle(one, claim.claim_id, {});
      expect(claims.map(({ task }) => task.id).toSorted()).toEqual(ids.toSorted());
      await counted("0", "0");
    });

    test("a failure is retried, then becomes a dead letter", async () => {
      const correlation_id = randomUUID();
      await one.publish({ type: "Raw", payload: 1, correlation_id });
      const failure = { class: "ValueError", message: "no words", stack: "at line 7", kind: "retryable" };
      for (const [before, status] of ["retry", "retry", "dead"].entries()) {
        const claim = await one.claim("editor");
        expect(claim.task).toMatchObject({ attempt: before + 1, artifacts: [{ correlation_id }] });
        expect((await settle(two, claim.claim_id, { failure })).body).toEqual({ status });
      }
      const [letter] = await one.deadLetters("editor", 1);
      expect(letter).toMatchObject({ attempts: 3, failure });
    });

    test("refuses outputs with wrong fields at once", async () => {
      await one.publish({ type: "Raw", payload: 1 });
      const claim = await one.claim("editor");
      const wrong = await settle(one, claim.claim_id, { outputs: [{ type: "A", payload: 1, colour: 1 }] });
      expect(wrong).toMatchObject({ status: 400, body: { error: { field: "outputs[0].colour" } } });
      expect((await settle(one, claim.claim_id, {})).body).toEqual({ status: "done" });
    });

    test("a worker without heartbeats loses its task to another", async () => {
      const id = await one.publish({ type: "Raw", payload: 1 });
      const silent = await two.claim("editor");
      const next = await one.claim("editor");
      expect([silent.task.id, next.task.id]).toEqual([id, id]);
      expect(await settle(one, silent.claim_id, {})).toMatchObject({
        status: 409,
        body: { error: { code: "lease_lost" } },
      });
      expect((await settle(one, next.claim_id, {})).body).toEqual({ status: "done" });
    });

    test("a heartbeat tells the worker that its correlation was cancelled", async () => {
      const correlation_id = randomUUID();
      await one.publish({ type: "Raw", payload: 1, correlation_id });
      const claim = await one.claim("editor");
      await two.post(`/correlations/${correlation_id}/cancel`);
      await eventually("it is told", async () => {
        const beat = await one.post<HeartbeatResponseJson>(`/claims/${claim.claim_id}/heartbeat`);
        return beat.body.cancelled;
      });
    });

    test("a token claims the tasks of its org, and one with `platform` those of all", async () => {
      const other = await one.token({ org_id: "org-2" });
      const operator = await one.token({ org_id: "org-2", scopes: [...BOARD_SCOPES, "platform"] });
      const id = await one.publish({ type: "Raw", payload: 1 });
      const ask = { worker: "w", wait_ms: 300 };
      expect((await one.post("/agents/editor/claim", ask, other)).body).toEqual({ claims: [] });
      const claim = await one.claim("editor", operator);
      expect(claim.task.id).toBe(id);
      expect((await one.post(`/claims/${claim.claim_id}/settle`, {}, other)).status).toBe(404);
      expect((await one.post(`/claims/${claim.claim_id}/settle`, {}, operator)).status).toBe(200);
    });

    test("workers keep their tasks when a server joins or stops", async () => {
      const correlation_id = randomUUID();
      // One task in each partition, so that on Kafka one of them moves.
      for (const partition_key of KEYS)
        await one.publish({ type: "Raw", payload: 1, correlation_id, partition_key });
      const claims = [];
      while (claims.length < KEYS.length) claims.push(await one.claim("editor"));
      const third = await startBoard(database.url, { agents }, settings);
      await eventually("it holds a task", async () => {
        const state = (await third.khala.blackboard.agents()).find(({ name }) => name === "editor");
        return Number(state?.running) > 0;
      });
      for (const { claim_id } of claims) {
        const beat = await one.post<HeartbeatResponseJson>(`/claims/${claim_id}/heartbeat`);
        expect(beat).toMatchObject({ status: 200, body: { cancelled: false } });
      }
      await third[Symbol.asyncDispose]();
      for (const { claim_id } of claims) {
        const status = await eventually("it is settled", async () => {
          const answer = await settle(two, claim_id, { outputs: [{ type: "Kept", payload: 1 }] });
          expect([200, 503]).toContain(answer.status);
          return answer.body.status;
        });
        expect(status).toBe("done");
      }
      const { artifacts } = await one.correlation(correlation_id, "done");
      expect(artifacts).toBe(String(2 * KEYS.length));
    });
  });

  describe("examples/python_worker", () => {
    function pythonWorker(context: TestContext, env: Record<string, string>) {
      needsPython(context);
      const program = join(ROOT, "examples/python_worker/worker.py");
      const child: ChildProcess = spawn("python3", ["-B", program, "--agent", "python", "--org", "org-1"], {
        env: { ...bareEnv(), ...env },
        stdio: ["ignore", "pipe", "pipe"],
      });
      let output = "";
      for (const stream of [child.stdout, child.stderr])
        stream!.setEncoding("utf8").on("data", (chunk: string) => (output += chunk));
      return {
        output: () => output,
        async [Symbol.asyncDispose]() {
          child.kill("SIGTERM");
          if (child.exitCode === null && child.signalCode === null) await once(child, "exit");
          expect([child.exitCode, output]).toEqual([0, expect.not.stringContaining("Traceback")]);
        },
      };
    }

    test("follows the contract: outputs, retryable failures and fatal ones", async (context) => {
      // It asks for its token itself, as in development.
      await using python = pythonWorker(context, { KHALA_URL: one.url });
      const [good, empty, wrong] = [randomUUID(), randomUUID(), randomUUID()];
      const text = (correlation_id: string, words: unknown) =>
        two.publish({ type: "Text", payload: { text: words }, correlation_id });
      const id = await text(good, "  three   little words ");
      await text(empty, "  ");
      await text(wrong, 7);
      expect(await outputsOf(good, "Edited")).toMatchObject([
        { payload: { text: "three little words", words: 3, key: `${id}:python@org-1` } },
      ]);
      const letters = await one.deadLetters("python", 2);
      const of = (correlation: string) =>
        letters.find(({ task }) => task!.artifacts![0]!.correlation_id === correlation)!;
      expect(of(empty)).toMatchObject({ attempts: 2, failure: { class: "ValueError", kind: "retryable" } });
      expect(of(empty).failure!.stack).toContain("worker.py");
      expect(of(wrong)).toMatchObject({ attempts: 1, failure: { class: "Fatal", kind: "fatal" } });
      await eventually("it has said so", () => python.output().split('"dead"').length === 3);
    });
  });
});

interface KeyVector {
  readonly artifact: object;
  readonly key: string;
  readonly record_key: string;
  readonly murmur2: number;
  readonly partitions: Readonly<Record<string, number>>;
}

test("Python computes the keys and partitions of the shared vectors", async (context) => {
  needsPython(context);
  const file = join(ROOT, "proto/vectors/board_keys.json");
  const { cases } = JSON.parse(await readFile(file, "utf8")) as { cases: KeyVector[] };
  const counts = Object.keys(cases[0]!.partitions);
  const input = cases.map(({ artifact }) => JSON.stringify(artifact)).join("\n");
  const program = join(ROOT, "examples/python_worker/board_keys.py");
  const { stdout, stderr } = spawnSync("python3", ["-B", program, ...counts], { input, encoding: "utf8" });
  expect(stderr).toBe("");
  const found = stdout
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line) as object);
  expect(found).toEqual(
    cases.map(({ key, record_key, murmur2, partitions }) => ({ key, record_key, murmur2, partitions })),
  );
  expect(found.length).toBeGreaterThan(20);
});
