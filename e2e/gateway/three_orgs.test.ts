import { randomUUID } from "node:crypto";
import { agent, createKhala, FatalError, type Khala, readConfig, runSummaries } from "@khala/server";
import { type Engine, scripted } from "@khala/server/engines";
import { RawClient } from "@khala/test-support/clients/clients";
import { seeded } from "@khala/test-support/kit/context";
import { eventually } from "@khala/test-support/kit/eventually";
import { testDatabase } from "@khala/test-support/postgres/test_database";
import { redisHere, testRedis } from "@khala/test-support/redis/redis";
import { BACKENDS, type Backend, backendSettings } from "@khala/test-support/servers/backends";
import { describe, expect, test } from "vitest";

/** Legal names that have broken something before. Each org marks all that it writes with its own word. */
const ORGS = [
  { org: "acme", mark: "MARKACME" },
  { org: "Acme Inc", mark: "MARKINC" },
  { org: "co:x", mark: "MARKCOX" },
] as const;
interface Org {
  readonly org: string;
  readonly mark: string;
}
const SUBJECT = "ada";
/** The same ids for everybody. */
const ID = "0192c7a0-0000-7000-8000-000000000001";
const RUN = "INV-1";
/** Of each test its own: tests share a Redis. */
let CONV = "";
const CORRELATION = "hello world";
const STREAM = "/streams/shared/name";
const SCOPES = [
  runSummaries.topic,
  "blackboard.correlations",
  "blackboard.agents",
  "approvals",
  "runtime:write",
  "chat",
  "blackboard:read",
  "blackboard:write",
  "blackboard:work:*",
  "ops",
];

const agents = [
  agent("writer", {
    consumes: "Idea",
    run: ({ artifact }) => ({ type: "Draft", payload: artifact.payload, correlation_id: CORRELATION }),
  }),
  agent("failing", {
    consumes: "Bad",
    run({ artifact }) {
      throw new FatalError(`cannot do ${JSON.stringify(artifact.payload)}`);
    },
  }),
  agent("signer", { consumes: "Contract", approval: true, run: () => {} }),
  agent("remote", { consumes: "Errand" }),
  agent("flaky", {
    consumes: "Try",
    order: "none",
    retry: { attempts: 2, base: 10, cap: 20 },
    run({ artifact }) {
      if (JSON.stringify(artifact.payload).includes(POISON)) throw new Error("This input fails.");
      return { type: "Tried", payload: artifact.payload };
    },
  }),
];
/** What every plane of the test chokes on. */
const POISON = "POISON";
const brittleRuns = {
  ...runSummaries,
  project(...[before, event, ...rest]: Parameters<typeof runSummaries.project>) {
    if (JSON.stringify(event.data).includes(POISON)) throw new Error("This stream fails.");
    return runSummaries.project(before, event, ...rest);
  },
};

interface Caller extends Org {
  readonly call: (
    method: string,
    path: string,
    body?: unknown,
    type?: string,
  ) => Promise<{ status: number; text: string }>;
  readonly socket: RawClient;
  readonly heard: string[];
}

async function openCaller(khala: Khala, of: Org): Promise<Caller> {
  const { token } = await khala.auth.issuer!.mint({
    sub: SUBJECT,
    org_id: of.org,
    scopes: SCOPES,
    ttl_s: 900,
  });
  const socket = await RawClient.connect(`${khala.url.replace("http", "ws")}/socket`, { token });
  const caller: Caller = {
    ...of,
    socket,
    heard: [],
    async call(method, path, body, type = "application/json") {
      const response = await fetch(khala.url + path, {
        method,
        headers: { authorization: `Bearer ${token}`, ...(body !== undefined && { "content-type": type }) },
        ...(body !== undefined && { body: typeof body === "string" ? body : JSON.stringify(body) }),
      });
      return { status: response.status, text: await response.text() };
    },
  };
  return caller;
}

/** What an org does, each with the same ids as the others. */
const STEPS: readonly ((caller: Caller, n: number) => Promise<{ status: number; text: string }>)[] = [
  ({ call, mark }, n) =>
    call("POST", `/runtime/v1/runs/${RUN}/events`, {
      events: [
        {
          event_id: `e${n}`,
          type: n === 0 ? "run.started" : "run.step",
          data: n === 0 ? { title: mark } : { name: mark },
        },
      ],
    }),
  ({ call, mark }) =>
    call("POST", "/chat", { conv_id: CONV, message: `${mark} says hello`, policy: "queue" }),
  ({ call, mark }, n) =>
    call("POST", "/blackboard/v1/artifacts", {
      id: ID,
      version: n + 1,
      type: "Idea",
      payload: { mark },
      correlation_id: CORRELATION,
      partition_key: "same key",
    }),
  ({ call, mark }) =>
    call("POST", "/blackboard/v1/artifacts", { type: "Bad", payload: { mark }, correlation_id: CORRELATION }),
  ({ call, mark }) => call("POST", "/blackboard/v1/artifacts", { type: "Contract", payload: { mark } }),
  ({ call, mark }) => call("POST", "/blackboard/v1/artifacts", { type: "Errand", payload: { mark } }),
  ({ call }) => call("PUT", STREAM, "", "text/plain"),
  ({ call, mark }) => call("POST", STREAM, mark, "text/plain"),
];

/** All that an org can read. */
async function everything({ call }: Caller): Promise<Record<string, string>> {
  const paths = [
    `/runtime/v1/runs/${RUN}/events`,
    `/sync/v1/doc/run:${RUN}`,
    `/sync/v1/list/${runSummaries.topic}`,
    "/sync/v1/list/blackboard.correlations",
    `/ops/v1/documents?topic=${runSummaries.topic}`,
    `/ops/v1/history/run:${RUN}`,
    "/ops/v1/conversations",
    "/ops/v1/failed-runs",
    "/ops/v1/audit",
    "/chat",
    `/chat/${CONV}`,
    `/chat/${CONV}/log`,
    STREAM,
    "/blackboard/v1/artifacts?limit=100",
    `/blackboard/v1/artifacts/${ID}`,
    `/blackboard/v1/correlations/${encodeURIComponent(CORRELATION)}`,
    "/blackboard/v1/dead-letters/failing",
    "/blackboard/v1/approvals",
  ];
  const answers = await Promise.all(
    paths.map(async (path) => {
      const { status, text } = await call("GET", path);
      expect([path, status, status === 200 ? "" : text]).toEqual([path, 200, ""]);
      return [path, text] as const;
    }),
  );
  return Object.fromEntries(answers);
}

async function settings(backend: Backend): Promise<Record<string, string>> {
  const board = await backendSettings(backend);
  // With Kafka, the conversations are on Redis: each plane is tested on each of its backends.
  if (backend !== "Kafka" || !redisHere().shared) return board;
  await using redis = await testRedis();
  return { ...board, REDIS_URL: redis.url };
}

describe.each(BACKENDS)("on %s", (backend) => {
  test.each([1, 2])("three orgs use the same ids for everything and never notice (seed %i)", async (seed) => {
    CONV = `main-${randomUUID()}`;
    await using database = await testDatabase();
    const config = readConfig({
      DATABASE_URL: database.url,
      KHALA_PORT: "0",
      KHALA_LOG_LEVEL: "silent",
      KHALA_AUTH_SECRETS: `test:${Buffer.alloc(32, 7).toString("base64")}`,
      KHALA_BOARD_POLL_MS: "50",
      ...(await settings(backend)),
    });
    const engine = scripted({
      script: ({ message }) => [{ text_delta: { text: `You said: ${message}` } }],
    });
    const khala = await createKhala({ models: [runSummaries], agents, engine }, { config, dev: true });
    try {
      const callers = await Promise.all(ORGS.map((org) => openCaller(khala, org)));
      for (const caller of callers) {
        await caller.socket.push("sync:v1", "phx_join", {});
        await caller.socket.push("sync:v1", "subscribe", { topics: [runSummaries.topic] });
        await caller.socket.push(`conversation:${CONV}`, "phx_join", {});
      }
      const random = seeded(seed);
      // Every org does every step twice; the order among them is the seed's.
      const todo = callers.flatMap((caller) =>
        [0, 1].flatMap((n) => STEPS.map((step) => ({ caller, step, n }))),
      );
      const queues = new Map(
        callers.map((caller) => [caller, todo.filter((each) => each.caller === caller)]),
      );
      while ([...queues.values()].some(({ length }) => length > 0)) {
        const open = [...queues.values()].filter(({ length }) => length > 0);
        const { caller, step, n } = open[Math.floor(random() * open.length)]!.shift()!;
        const { status, text } = await step(caller, n);
        expect([caller.org, status < 300, text]).toEqual([caller.org, true, text]);
      }
      for (const caller of callers) {
        const { mark, call } = caller;
        await eventually(`all of ${caller.org} is there`, async () => {
          const [letters, approvals, documents, chat, drafts] = await Promise.all([
            call("GET", "/blackboard/v1/dead-letters/failing"),
            call("GET", "/blackboard/v1/approvals"),
            call("GET", `/sync/v1/list/${runSummaries.topic}`),
            call("GET", `/chat/${CONV}/log`),
            call("GET", "/blackboard/v1/artifacts?type=Draft&limit=10"),
          ]);
          return (
            JSON.parse(letters.text).dead_letters.length === 2 &&
            JSON.parse(approvals.text).approvals.length === 2 &&
            documents.text.includes(mark) &&
            chat.text.split(`You said: ${mark}`).length > 2 &&
            JSON.parse(drafts.text).artifacts.length === 2
          );
        });
        const claimed = await call("POST", "/blackboard/v1/agents/remote/claim", {
          worker: "w",
          max: 10,
          wait_ms: 5_000,
        });
        expect(JSON.parse(claimed.text).claims.length).toBeGreaterThan(0);
        const seen: Record<string, string> = {
          ...(await everything(caller)),
          claimed: claimed.text,
          socket: JSON.stringify(caller.socket.received),
        };
        const others = ORGS.filter((other) => other.mark !== mark);
        for (const [path, text] of Object.entries(seen)) {
          for (const other of others) expect(text, `${caller.org} at ${path}`).not.toContain(other.mark);
        }
        expect(seen[`/sync/v1/doc/run:${RUN}`]).toContain(mark);
        expect(seen[STREAM]).toBe(mark + mark);
        expect(seen[`/blackboard/v1/artifacts/${ID}`]).toContain(mark);
        expect(seen.socket).toContain(mark);
      }
      for (const { socket } of callers) await socket[Symbol.asyncDispose]();
      const ready = (await (await fetch(`${khala.url}/readyz`)).json()) as {
        dependencies: Record<string, { state: string }>;
      };
      expect(Object.values(ready.dependencies).map(({ state }) => state)).not.toContain("unavailable");
    } finally {
      await khala.stop();
    }
  });

  test("an org at every quota, with failing work on every plane, does not hinder the others", async () => {
    CONV = `main-${randomUUID()}`;
    await using database = await testDatabase();
    const config = readConfig({
      DATABASE_URL: database.url,
      KHALA_PORT: "0",
      KHALA_LOG_LEVEL: "silent",
      KHALA_AUTH_SECRETS: `test:${Buffer.alloc(32, 7).toString("base64")}`,
      KHALA_BOARD_POLL_MS: "50",
      KHALA_MAX_SOCKETS_PER_ORG: "3",
      KHALA_MAX_SUBSCRIPTIONS_PER_ORG: "2",
      KHALA_CHAT_ORG_RUNS: "2",
      KHALA_BOARD_PUBLISH_RATE: "20",
      ...(await settings(backend)),
    });
    const released = Promise.withResolvers<void>();
    const engine = (): Engine => ({
      async *run({ message }) {
        if (message.includes(POISON)) await released.promise;
        yield { text_delta: { text: `You said: ${message}` } };
      },
    });
    const khala = await createKhala({ models: [brittleRuns], agents, engine }, { config, dev: true });
    try {
      const [loud, ...others] = await Promise.all(ORGS.map((org) => openCaller(khala, org)));
      const { call } = loud!;
      const refusals = new Set<string>();
      /** Repeats until a quota refuses it. */
      const exhaust = async (
        name: string,
        attempt: (n: number) => Promise<{ status: number; text: string }>,
      ) =>
        eventually(`the quota ${name}`, async () => {
          for (let n = 0; n < 100; n++) {
            const { status, text } = await attempt(n);
            if (status !== 429) continue;
            refusals.add(JSON.parse(text).error.field);
            return refusals.has(name);
          }
          return false;
        });
      // A stream, an agent and runs that fail or hang, and tasks that nobody takes.
      const failing = { events: [{ event_id: "e", type: "run.started", data: { title: POISON } }] };
      for (let n = 0; n < 5; n++) await call("POST", `/runtime/v1/runs/poison-${n}/events`, failing);
      await exhaust("chat_runs", (n) =>
        call("POST", "/chat", { conv_id: `${CONV}-${n}`, message: POISON, policy: "queue" }),
      );
      await eventually("the agent's breaker is open", async () => {
        await call("POST", "/blackboard/v1/artifacts", { type: "Try", payload: POISON });
        const { agents: listed } = JSON.parse((await call("GET", "/blackboard/v1/agents")).text);
        return listed.some(({ name, state }: Record<string, string>) => name === "flaky" && state === "open");
      });
      await exhaust("board_artifacts", async () => {
        // All at once: one after the other they may be slower than the rate.
        const errand = { type: "Errand", payload: POISON };
        const answers = await Promise.all(
          Array.from({ length: 40 }, () => call("POST", "/blackboard/v1/artifacts", errand)),
        );
        return answers.find(({ status }) => status === 429) ?? answers[0]!;
      });
      const topics = [runSummaries.topic, "blackboard.correlations", "blackboard.agents", "approvals"];
      await loud!.socket.push("sync:v1", "phx_join", {});
      await loud!.socket.push("sync:v1", "subscribe", { topics: topics.slice(0, 2) });
      expect(await loud!.socket.push("sync:v1", "subscribe", { topics: topics.slice(2) })).toMatchObject({
        status: "error",
        response: { error: { code: "limit_exceeded", field: "subscriptions" } },
      });
      for (let n = 0; n < 2; n++) await openCaller(khala, loud!);
      await expect(openCaller(khala, loud!)).rejects.toThrow();
      expect([...refusals]).toEqual(["chat_runs", "board_artifacts"]);

      for (const { call, mark, socket, org } of others) {
        await socket.push("sync:v1", "phx_join", {});
        expect(await socket.push("sync:v1", "subscribe", { topics: topics.slice(0, 1) })).toMatchObject({
          status: "ok",
        });
        for (const step of STEPS) {
          const { status, text } = await step({ call, mark, socket, org, heard: [] }, 0);
          expect([org, status < 300, text]).toEqual([org, true, text]);
        }
        await call("POST", "/blackboard/v1/artifacts", { type: "Try", payload: { mark } });
        // The tasks of the first org wait for workers that it does not have.
        const claims = await eventually(`the errand of ${org}`, async () => {
          const ask = { worker: "w", max: 10, wait_ms: 5_000 };
          const claimed = await call("POST", "/blackboard/v1/agents/remote/claim", ask);
          const { claims } = JSON.parse(claimed.text);
          return claims.length > 0 && claims;
        });
        expect(claims).toMatchObject([{ task: { artifacts: [{ payload: { mark } }] } }]);
        await eventually(`the work of ${org} is done`, async () => {
          const [documents, chat, drafts, tried] = await Promise.all([
            call("GET", `/sync/v1/list/${runSummaries.topic}`),
            call("GET", `/chat/${CONV}/log`),
            call("GET", "/blackboard/v1/artifacts?type=Draft"),
            call("GET", "/blackboard/v1/artifacts?type=Tried"),
          ]);
          return (
            documents.text.includes(mark) &&
            chat.text.includes(`You said: ${mark}`) &&
            drafts.text.includes(mark) &&
            tried.text.includes(mark) &&
            JSON.stringify(socket.received).includes(mark)
          );
        });
      }
    } finally {
      released.resolve();
      await khala.stop();
    }
  });
});
