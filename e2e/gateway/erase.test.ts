import { randomUUID } from "node:crypto";
import type { EraseResponseJson } from "@khala/contracts/ops/v1";
import { agent, defineModel, FatalError, notifications, runSummaries, runs } from "@khala/server";
import { scripted } from "@khala/server/engines";
import { testContext } from "@khala/test-support/kit/context";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { type TestRedis, testRedis } from "@khala/test-support/redis/redis";
import { startServer, type TestServer } from "@khala/test-support/servers/servers";
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from "vitest";
import { reproject as rebuild } from "../../packages/server/src/sync/rebuild/reprojection.ts";

/** A document of everybody's runs. */
const totals = defineModel({
  topic: "app.totals",
  prefix: "total",
  streams: [runs],
  id: () => "all",
  project: (before: { titles: string[] } | null, event) => {
    const titles = before?.titles ?? [];
    return event.type === "run.started" ? { titles: [...titles, event.data.title ?? ""] } : { titles };
  },
});
const failing = agent("failing", {
  consumes: "Bad",
  run() {
    throw new FatalError("It fails always.");
  },
});
const SECRET = "Ada's secret";
const PERSON = [
  "runtime:write",
  "runtime.run_summaries",
  "app.totals",
  "approvals",
  "chat",
  "blackboard:write",
  "blackboard:read",
];

let database: TestDatabase;
let redis: TestRedis;
let server: TestServer;
beforeAll(async () => {
  redis = await testRedis();
}, 180_000);
afterAll(async () => {
  await redis[Symbol.asyncDispose]();
});
afterEach(async () => {
  await server[Symbol.asyncDispose]();
  await database[Symbol.asyncDispose]();
});

async function serve(log: string): Promise<void> {
  database = await testDatabase();
  server = await startServer(database.url, {
    agents: [failing],
    engine: scripted(),
    models: [runSummaries, notifications, totals],
    settings: log === "Redis" ? { REDIS_URL: redis.url } : {},
  });
}

const tokenOf = (sub: string, scopes: readonly string[] = PERSON, org_id = "acme") =>
  server.token({ org_id, sub, scopes: [...scopes] });

async function call<T = unknown>(
  token: string,
  path: string,
  body?: unknown,
  method = body ? "POST" : "GET",
) {
  const response = await server.request(path, token, {
    method,
    ...(body !== undefined && {
      headers: { "content-type": "application/json" },
      body: JSON.stringify(body),
    }),
  });
  const text = await response.text();
  return { status: response.status, body: (text ? JSON.parse(text) : undefined) as T, text };
}

async function start(token: string, id: string, title: string): Promise<void> {
  const events = [{ event_id: "e1", type: "run.started", data: { title } }];
  expect((await call(token, `/runtime/v1/runs/${id}/events`, { events })).status).toBe(201);
}

/** All steps; what they erased, and what is to be rebuilt. */
async function erase(token: string, more: object) {
  const found: Record<string, number> = {};
  const reproject = new Set<string>();
  for (let next: string | undefined, steps = 0; steps === 0 || next; steps++) {
    expect(steps).toBeLessThan(50);
    const { status, body } = await call<EraseResponseJson>(token, "/ops/v1/erase", {
      subject: "ada",
      ...more,
      next,
    });
    expect(status).toBe(200);
    for (const { what = "", count = 0 } of body.erased ?? []) found[what] = (found[what] ?? 0) + count;
    for (const topic of body.reproject ?? []) reproject.add(topic);
    next = body.next;
  }
  return { found, reproject: [...reproject] };
}

const eventually = (work: () => Promise<void>) => vi.waitFor(work, { timeout: 30_000, interval: 50 });

interface ChatState {
  readonly run?: {
    readonly status: string;
    readonly waits_for?: readonly { readonly tool_call_id: string }[];
  } | null;
}

/** Says it in a conversation, and waits until its run has ended, or waits for a person; returns what it waits for. */
async function say(token: string, conv: string, message: string): Promise<string> {
  await eventually(async () => {
    expect((await call(token, "/chat", { conv_id: conv, message })).status).toBe(202);
  });
  let waits = "";
  await eventually(async () => {
    const { run } = (await call<ChatState>(token, `/chat/${conv}`)).body;
    if (run) expect(run.status).toBe("waiting");
    waits = run?.waits_for?.[0]?.tool_call_id ?? "";
  });
  return waits;
}

const idle = (token: string, conv: string) =>
  eventually(async () => expect((await call<ChatState>(token, `/chat/${conv}`)).body.run ?? null).toBeNull());

/** The logs in Redis that have the text. */
async function redisLogsWith(text: string): Promise<string[]> {
  const found: string[] = [];
  for (const key of await redis.client.keys("*")) {
    if ((await redis.client.type(key)) !== "stream") continue;
    if (JSON.stringify(await redis.client.xrange(key, "-", "+")).includes(text)) found.push(key);
  }
  return found;
}

/** Every row of the schema that has the text, as the names of its tables. */
async function tablesWith(text: string): Promise<string[]> {
  const tables = await database.database.query<{ name: string }>({
    text: "SELECT table_name AS name FROM information_schema.tables WHERE table_schema = 'runtime' AND table_type = 'BASE TABLE'",
  });
  const found: string[] = [];
  for (const { name } of tables) {
    const sql = `SELECT 1 FROM runtime.${name} t WHERE position($1 IN convert_from(decode(replace(encode(convert_to(t::text, 'UTF8'), 'hex'), '', ''), 'hex'), 'UTF8')) > 0
      OR position(encode(convert_to($1, 'UTF8'), 'hex') IN t::text) > 0 LIMIT 1`;
    if ((await database.database.query({ text: sql, values: [text] })).length > 0) found.push(name);
  }
  return found.sort();
}

describe.each(["Postgres", "Redis"])("with logs on %s", (log) => {
  test("counts a subject's data, then erases it everywhere, and keeps that of others", async () => {
    await serve(log);
    const [ada, bob, operator] = [await tokenOf("ada"), await tokenOf("bob"), await tokenOf("olga", ["ops"])];
    await start(ada, "r1", SECRET);
    await start(bob, "r2", "Bob's own");
    await start(await tokenOf("ada", PERSON, "globex"), "r1", "Another Ada");
    const own = `conv-${randomUUID()}`;
    const shared = `conv-${randomUUID()}`;
    await say(ada, own, SECRET);
    await say(bob, shared, "Bob asks");
    await call(bob, `/chat/${shared}/participants/ada`, { role: "member" }, "PUT");
    await say(ada, shared, SECRET);
    // Bob's runs, in which Ada has a word, and a run of Ada's that waits for ever.
    const [denied, answered, approved, waiting] = ["denied", "answered", "approved", "waiting"].map(
      (name) => `${name}-${randomUUID()}`,
    ) as [string, string, string, string];
    const asked: string[] = [];
    for (const [conv, message] of [
      [denied, "/approve Bob's deed"],
      [answered, "/ask Bob's question"],
      [approved, "/approve Bob's deed"],
      [waiting, "Bob waits"],
    ] as const) {
      asked.push(await say(bob, conv, message));
      await call(bob, `/chat/${conv}/participants/ada`, { role: "member" }, "PUT");
    }
    for (const [conv, at, decision] of [
      [denied, 0, { approve: false, reason: SECRET }],
      [answered, 1, { output: { said: SECRET } }],
      [approved, 2, { approve: true, reason: SECRET }],
    ] as const) {
      expect((await call(ada, `/chat/${conv}/tools/${asked[at]}`, decision)).text).toContain("run_id");
      await idle(bob, conv);
    }
    expect(await say(ada, waiting, `/approve ${SECRET}`)).not.toBe("");
    // One in a conversation of her own.
    expect(await say(ada, `pending-${randomUUID()}`, `/approve ${SECRET}`)).not.toBe("");
    const pending = async () => {
      const { approvals } = (await call<{ approvals: unknown[] }>(ada, "/approvals")).body;
      const { documents } = (await call<{ documents: unknown[] }>(ada, "/sync/v1/list/approvals")).body;
      return [approvals.length, documents.length];
    };
    await eventually(async () => expect(await pending()).toEqual([2, 2]));
    const file = await server.request(`/files?conv_id=${shared}&name=a.txt`, ada, {
      method: "POST",
      headers: { "content-type": "text/plain" },
      body: SECRET,
    });
    expect(file.status).toBe(201);
    await call(ada, "/blackboard/v1/artifacts", {
      type: "Bad",
      payload: { text: SECRET },
      correlation_id: "c1",
    });
    await call(bob, "/blackboard/v1/artifacts", { type: "Note", payload: { text: "Bob's own" } });
    await eventually(async () => {
      const { body } = await call<{ dead_letters: unknown[] }>(ada, "/blackboard/v1/dead-letters/failing");
      expect(body.dead_letters).toHaveLength(1);
      expect((await call(ada, "/sync/v1/doc/run:r1")).status).toBe(200);
      expect((await call(bob, "/sync/v1/doc/total:all")).text).toContain("Bob's own");
    });
    expect(await tablesWith(SECRET)).not.toEqual([]);
    if (log === "Redis") expect(await redisLogsWith(SECRET)).not.toEqual([]);

    const dry = await erase(operator, {});
    expect(dry.found).toMatchObject({
      conversations: 2,
      participations: 5,
      files: 1,
      artifacts: 1,
      dead_letters: 1,
    });
    expect(dry.found.events).toBeGreaterThan(0);
    expect((await call(ada, "/sync/v1/doc/run:r1")).status).toBe(200);

    const { found, reproject } = await erase(operator, { dry_run: false });
    expect(found).toMatchObject({
      conversations: 2,
      participations: 5,
      files: 1,
      logs: 5,
      messages: dry.found.messages,
      artifacts: 1,
      dead_letters: 1,
    });
    // The document that others have a part in, until it is rebuilt.
    expect(reproject).toContain("app.totals");
    expect(await tablesWith(SECRET)).toEqual(["sync_totals"]);
    await rebuild(database.database, await testContext(), totals, { inline: true });
    expect((await call(bob, "/sync/v1/doc/total:all")).text).toContain("Bob's own");
    expect((await call(bob, "/sync/v1/doc/total:all")).text).not.toContain(SECRET);
    if (log === "Redis") expect(await redisLogsWith(SECRET)).toEqual([]);
    await idle(bob, waiting);
    await eventually(async () => expect(await pending()).toEqual([0, 0]));
    for (const conv of [shared, denied, answered, approved, waiting]) {
      const { text } = await call(bob, `/chat/${conv}`);
      expect(text).toContain("Bob");
      expect(text).not.toContain('"ada"');
      expect((await call(ada, `/chat/${conv}`)).status).toBe(404);
    }
    expect((await call(bob, `/chat/${approved}`)).text).toContain("Done: Bob's deed");
    expect((await call(ada, "/sync/v1/doc/run:r1")).status).toBe(404);
    expect((await call(bob, "/sync/v1/doc/run:r2")).status).toBe(200);
    expect((await call(bob, `/chat/${shared}`)).text).toContain("Bob asks");
    expect((await call(ada, `/runtime/v1/runs/r1/events`)).status).toBe(404);
    const globex = await tokenOf("ada", PERSON, "globex");
    expect((await call(globex, "/sync/v1/doc/run:r1")).text).toContain("Another Ada");
    // Events that come afterwards are projected, and a second pass finds little: what erasing itself told.
    await start(bob, "r3", "Bob again");
    await eventually(async () => expect((await call(bob, "/sync/v1/doc/run:r3")).status).toBe(200));
    expect(await erase(operator, { dry_run: false })).toMatchObject({
      found: { conversations: 0, messages: 0, artifacts: 0, events: 0 },
    });
  });
});

test("an operator erases in its own org only, and the body is checked", async () => {
  await serve("Postgres");
  const operator = await tokenOf("olga", ["ops"]);
  const refused = (body: object) =>
    call<{ error: { code: string; field?: string } }>(operator, "/ops/v1/erase", body);
  expect((await refused({ subject: "ada", org_id: "globex" })).status).toBe(404);
  expect((await refused({ subject: "" })).body.error).toMatchObject({
    code: "invalid_request",
    field: "subject",
  });
  expect((await refused({ subject: "ada", next: "x" })).body.error).toMatchObject({ field: "next" });
  const platform = await tokenOf("pia", ["platform"], "host");
  const other = await call<EraseResponseJson>(platform, "/ops/v1/erase", {
    subject: "ada",
    org_id: "globex",
  });
  expect(other.body).toMatchObject({ dry_run: true });
});
