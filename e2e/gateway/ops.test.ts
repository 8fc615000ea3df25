import { isDeepStrictEqual } from "node:util";
import { fromBinary } from "@bufbuild/protobuf";
import {
  type AboutJson,
  type ErrorListJson,
  FrameSchema,
  type OverviewJson,
  type Plain,
  type SettingListJson,
  type SocketListJson,
  type TraceJson,
  type TraceListJson,
} from "@khala/contracts/ops/v1";
import { agent, describeConfig, FatalError, readConfig } from "@khala/server";
import { until } from "@khala/test-support/clients/clients";
import { answerOf, openPhoenix, PHOENIX_CLIENTS } from "@khala/test-support/clients/phoenix";
import { eventually } from "@khala/test-support/kit/eventually";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { appendToRun, RUNS, startServer, type TestServer } from "@khala/test-support/servers/servers";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { settingsOf } from "../../packages/server/src/main/ops.ts";

type Overview = Plain<OverviewJson>;

const doomed = agent("doomed", {
  consumes: "Doom",
  run() {
    throw new FatalError("Nothing can be made of it.");
  },
});

let database: TestDatabase;
let server: TestServer;
let operator: string;
beforeAll(async () => {
  database = await testDatabase();
  server = await startServer(database.url, { agents: [doomed], settings: { KHALA_OPS_INTERVAL_MS: "100" } });
  operator = await server.token({ scopes: ["ops", "platform", "blackboard:write", RUNS] });
});
afterAll(async () => {
  await server[Symbol.asyncDispose]();
  await database[Symbol.asyncDispose]();
});

async function get<T>(path: string, token = operator): Promise<T> {
  const response = await server.request(path, token);
  expect(response.status, path).toBe(200);
  return (await response.json()) as T;
}

const client = PHOENIX_CLIENTS.at(-1)!;

async function connected(token: string) {
  const socket = await openPhoenix(client, server.socketUrl, { params: { token }, rejoinAfterMs: () => 20 });
  socket.connect();
  await until("a connection", () => socket.isConnected());
  return socket;
}

const ROUTES = [
  "overview",
  "topics",
  `documents?topic=${RUNS}`,
  "history/run:r1",
  "sockets",
  "conversations",
  "parity",
  "errors",
  "traces",
  `traces/${"0".repeat(32)}`,
  "config",
];

test.each(ROUTES)("GET /ops/v1/%s needs a token with the scope ops", async (path) => {
  const nobody = await server.request(`/ops/v1/${path}`);
  expect(nobody.status).toBe(401);
  const other = await server.request(`/ops/v1/${path}`, await server.token());
  expect(other.status).toBe(403);
  expect(await other.json()).toMatchObject({ error: { code: "missing_scope" } });
});

describe("about", () => {
  test("needs no token, and names version and backends", async () => {
    const about = (await (await server.request("/ops/v1/about")).json()) as AboutJson;
    expect(about).toMatchObject({
      version: expect.stringMatching(/^\d+\.\d+\.\d+/),
      dev: true,
      mints: true,
      backends: { sync: "postgres", conversations: "postgres", blackboard: "postgres" },
    });
    expect(about.scopes).toEqual(expect.arrayContaining([RUNS, "ops", "chat", "runtime:write"]));
  });

  test("a token can be minted with the scopes that it lists", async () => {
    const { scopes } = (await (await server.request("/ops/v1/about")).json()) as AboutJson;
    const response = await server.request("/api/sync/token", undefined, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ sub: "dev", org_id: "demo", scopes }),
    });
    const { token } = (await response.json()) as { token: string };
    await get("/ops/v1/overview", token);
  });

  test("does not offer tokens to a foreign page, nor in production", async () => {
    const headers = { origin: "https://evil.example" };
    const foreign = (await (
      await server.request("/ops/v1/about", undefined, { headers })
    ).json()) as AboutJson;
    expect(foreign).toMatchObject({ mints: false, scopes: [] });
    await using production = await startServer(database.url, {
      dev: false,
      settings: { KHALA_TRACE_URL: "https://traces.example/{trace_id}" },
    });
    expect(await (await production.request("/ops/v1/about")).json()).toMatchObject({
      dev: false,
      mints: false,
      scopes: [],
      trace_url: "https://traces.example/{trace_id}",
    });
    const traces = await production.request("/ops/v1/traces", operator);
    expect(traces.status).toBe(404);
    expect(JSON.stringify(await traces.json())).toContain("OTEL_EXPORTER_OTLP_ENDPOINT");
  });
});

describe("overview", () => {
  test("has the figures of every plane, as numbers", async () => {
    // A plane that takes its time on a busy machine is left out of a snapshot.
    const overview = await eventually("one with all planes", async () => {
      const each = await get<Overview>("/ops/v1/overview");
      return (
        each.sync!.state === "ok" &&
        each.conversations!.state === "ok" &&
        each.blackboard!.agents === 1 &&
        each
      );
    });
    expect(overview).toMatchObject({
      at: expect.stringMatching(/^\d{4}-.*Z$/),
      uptime_s: expect.any(Number),
      process: { rss_bytes: expect.any(Number), cpu_percent: expect.any(Number) },
      sync: { state: "ok", updates_per_s: expect.any(Number), topics: expect.any(Number), lag: 0 },
      conversations: { state: "ok", backend: "postgres", running: 0, failed: 0 },
      blackboard: { backend: "postgres", agents: 1, paused: 0, waiting: expect.any(Number) },
      gateway: { sockets: expect.any(Number), errors_per_s: expect.any(Number) },
    });
  });

  test("is computed once per interval", async () => {
    // Two that are asked at once may still be on both sides of an interval's end.
    await eventually("two within one interval", async () => {
      const ask = () => get<Overview>("/ops/v1/overview");
      const [one, two] = await Promise.all([ask(), ask()]);
      return isDeepStrictEqual(one, two);
    });
  });

  test("shows writes as a rate", async () => {
    let version = 0;
    const rate = await eventually("a rate", async () => {
      await server.write({ key: "run:rated", version: ++version, org: "org-1", payload: { version } });
      return (await get<Overview>("/ops/v1/overview")).sync!.updates_per_s;
    });
    expect(rate).toBeGreaterThan(0);
  });

  test("shows the board as degraded with a dead letter, and says what to do", async () => {
    await server.request("/blackboard/v1/artifacts", operator, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ type: "Doom", payload: {} }),
    });
    await eventually("the dead letter", async () => {
      const { dead, state, message } = (await get<Overview>("/ops/v1/overview")).blackboard!;
      return dead === 1 && state === "degraded" && message?.includes("1 dead letter");
    });
  });

  test("shows the board as degraded with a paused agent", async () => {
    const post = (what: string) =>
      server.request(`/blackboard/v1/agents/doomed/${what}`, operator, { method: "POST" });
    await post("pause");
    await eventually("the pause", async () => {
      const { paused, state, message } = (await get<Overview>("/ops/v1/overview")).blackboard!;
      return paused === 1 && state === "degraded" && message?.includes("Paused: doomed");
    });
    await post("resume");
  });
});

describe("the channel ops:v1", () => {
  test("sends one snapshot after the other, in either encoding", async () => {
    using socket = await connected(operator);
    const frames: { overview: Overview }[] = [];
    const channel = socket.channel("ops:v1");
    channel.on("frame", (frame) => frames.push(frame as { overview: Overview }));
    expect(await answerOf(channel.join())).toEqual({ status: "ok", response: {} });
    await until("three snapshots", () => frames.length >= 3);
    expect(new Set(frames.map(({ overview }) => overview.at)).size).toBe(frames.length);
    expect(frames[0]!.overview).toMatchObject({ gateway: { sockets: expect.any(Number) } });

    using other = await connected(operator);
    const binary: ArrayBuffer[] = [];
    const proto = other.channel("ops:v1", { encoding: "proto" });
    proto.on("frame", (data) => binary.push(data as ArrayBuffer));
    await answerOf(proto.join());
    await until("a binary snapshot with the board", () =>
      binary.some((data) => {
        const { body } = fromBinary(FrameSchema, new Uint8Array(data));
        return body.case === "overview" && body.value.blackboard?.agents === 1;
      }),
    );
  });

  test("is refused without the scope", async () => {
    using socket = await connected(await server.token());
    const { status, response } = await answerOf(socket.channel("ops:v1").join());
    expect(status).toBe("error");
    expect(response).toMatchObject({ error: { code: "missing_scope" } });
  });

  test("closes when a refreshed token lacks the scope", async () => {
    using socket = await connected(operator);
    const channel = socket.channel("ops:v1");
    let closed = false;
    channel.onClose(() => {
      closed = true;
    });
    await answerOf(channel.join());
    const { status } = await answerOf(channel.push("auth", { token: await server.token() }));
    expect(status).toBe("ok");
    await until("the close", () => closed);
  });
});

describe("sockets", () => {
  test("lists the sockets of the org with their topics and cursors, and no other org's", async () => {
    using own = await connected(await server.token({ sub: "ada", org_id: "acme" }));
    using foreign = await connected(await server.token({ sub: "eve", org_id: "others" }));
    expect(foreign.isConnected()).toBe(true);
    const channel = own.channel("sync:v1");
    await answerOf(channel.join());
    await answerOf(channel.push("subscribe", { topics: [RUNS] }));
    const token = await server.token({ org_id: "acme", scopes: ["ops"] });
    const { sockets } = await get<SocketListJson>("/ops/v1/sockets", token);
    expect(sockets).toMatchObject([
      {
        subject: "ada",
        org: "acme",
        kind: "phoenix",
        remote: expect.stringContaining("127.0.0.1"),
        state: "ok",
        sent: expect.any(Number),
        channels: [{ topic: "sync:v1", cursors: { [RUNS]: { watermark: expect.stringMatching(/^\d+$/) } } }],
      },
    ]);
  });

  test("remembers why a socket was closed, for its org only", async () => {
    const token = await server.token({ sub: "bob", org_id: "closing" });
    using socket = await connected(token);
    // Not a frame of Phoenix.
    socket.conn!.send("nonsense");
    const watcher = await server.token({ org_id: "closing", scopes: ["ops"] });
    const closes = await eventually("the close", async () => {
      const list = await get<SocketListJson>("/ops/v1/sockets", watcher);
      return list.closes!.length > 0 && list.closes!;
    });
    expect(closes[0]).toMatchObject({
      subject: "bob",
      code: 4400,
      reason: "invalid_request",
      kind: "phoenix",
    });
    const others = await server.token({ org_id: "unrelated", scopes: ["ops"] });
    expect((await get<SocketListJson>("/ops/v1/sockets", others)).closes).toEqual([]);
  });
});

test("lists the org's traces, which cover every plane, and no other org's", async () => {
  const scopes = ["ops", "platform", "chat", "blackboard:write", "runtime:write", RUNS];
  const own = await server.token({ org_id: "traced", scopes });
  const foreign = await server.token({ org_id: "untraced", scopes });
  const send = async (path: string, body: unknown) => {
    const headers = { "content-type": "application/json" };
    const sent = await server.request(path, own, { method: "POST", headers, body: JSON.stringify(body) });
    expect(sent.ok, path).toBe(true);
  };
  await send("/blackboard/v1/artifacts", { type: "Doom", payload: null, correlation_id: "traced" });
  await send("/chat", { conv_id: "traced", message: "hello" });
  await appendToRun(server, own, "traced", { type: "run.started" });
  const steps = [/^POST \/blackboard\/v1\/artifacts$/, /^publish board/, /^route /, /^process /, /^settle /];
  const spans = await eventually("a span of each step", async () => {
    const { traces = [] } = await get<TraceListJson>("/ops/v1/traces?limit=1000", own);
    const all = await Promise.all(
      traces.map(({ trace_id }) => get<TraceJson>(`/ops/v1/traces/${trace_id}`, own)),
    );
    const found = all.flatMap((each) => each.spans ?? []);
    const has = (step: RegExp) => found.some(({ name = "" }) => step.test(name));
    return (
      [
        ...steps,
        /^POST \/chat$/,
        /^invoke_agent$/,
        /^POST \/runtime\/v1\/runs\/:id\/events$/,
        /^project /,
        /^push /,
      ].every(has) && found
    );
  });
  expect(new Set(spans.map(({ attributes }) => attributes?.["khala.org_id"]))).toEqual(new Set(["traced"]));

  const { traces = [] } = await get<TraceListJson>("/ops/v1/traces?correlation_id=traced", own);
  expect(traces).toHaveLength(1);
  expect(await get<TraceListJson>("/ops/v1/traces?limit=1000", foreign)).toEqual({ traces: [] });
  expect((await server.request(`/ops/v1/traces/${traces[0]!.trace_id}`, foreign)).status).toBe(404);
});

test("counts errors by code", async () => {
  const countOf = async (code: string) =>
    Number(
      (await get<ErrorListJson>("/ops/v1/errors")).errors!.find((each) => each.code === code)?.count ?? 0,
    );
  const before = await countOf("not_found");
  await server.request("/nowhere");
  expect(await countOf("not_found")).toBe(before + 1);
});

describe("config", () => {
  test("lists every setting with its value, and whether it is the default", async () => {
    const { settings } = await get<SettingListJson>("/ops/v1/config");
    expect(settings!.map(({ name }) => name)).toEqual(describeConfig(readConfig({})).map(({ name }) => name));
    expect(settings).toContainEqual(
      expect.objectContaining({ name: "KHALA_OPS_INTERVAL_MS", value: "100", default: false, secret: false }),
    );
    expect(settings).toContainEqual(
      expect.objectContaining({ name: "DATABASE_URL", value: "***", secret: true }),
    );
    expect(settings).toContainEqual(
      expect.objectContaining({ name: "CONVEX_SECRET", value: "", default: true }),
    );
    expect(JSON.stringify(settings)).not.toContain(database.url);
  });

  test("contains no secret, whichever setting has it", () => {
    const word = "hush-hush-hush-hush";
    // What some settings need to mean anything.
    const around = {
      KAFKA_SASL_MECHANISM: "plain",
      KAFKA_SASL_USERNAME: "ann",
      KAFKA_SASL_PASSWORD: "-",
      KAFKA_SSL_ENABLE: "true",
    };
    const texts: Record<string, string> = {};
    for (const { name } of describeConfig(readConfig({}))) {
      const candidates = [
        word,
        `postgres://u:${word}@h/d`,
        `redis://:${word}@h`,
        `https://u:${word}@h/p?key=${word}`,
        `k1:${word.repeat(3)}`,
      ];
      const taken = candidates.find((value) => accepts({ ...around, [name]: value }));
      if (taken) texts[name] = taken;
    }
    expect(Object.keys(texts)).toEqual(
      expect.arrayContaining([
        "DATABASE_URL",
        "REDIS_URL",
        "KAFKA_SASL_PASSWORD",
        "KAFKA_SSL_KEY",
        "KHALA_AUTH_SECRETS",
      ]),
    );
    const settings = settingsOf(
      readConfig({ ...texts, ...around, KAFKA_SASL_PASSWORD: texts.KAFKA_SASL_PASSWORD }),
    );
    // Names of files, hosts and the like are no secrets.
    const open = settings.filter(({ value }) => value!.includes(word)).map(({ name }) => name);
    const words = /SECRET|PASSWORD|PASSPHRASE|KEY\b|URL|ENDPOINT/;
    expect(open.filter((name) => words.test(name!))).toEqual([]);
  });
});

function accepts(environment: Record<string, string>): boolean {
  try {
    readConfig(environment);
    return true;
  } catch {
    return false;
  }
}
