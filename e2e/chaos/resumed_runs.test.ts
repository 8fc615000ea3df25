import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { ConversationStateJson, EventJson, LogPageJson } from "@khala/contracts/conversation/v1";
import { eventually } from "@khala/test-support/kit/eventually";
import { tokenMint } from "@khala/test-support/kit/tokens";
import { testDatabase } from "@khala/test-support/postgres/test_database";
import { startRedis } from "@khala/test-support/redis/redis";
import { type GatewayProcess, startGateway } from "@khala/test-support/servers/gateways";
import { expect, test } from "vitest";

const COUNT = 60;
const ANSWER = Array.from({ length: COUNT }, (_, i) => `${i + 1} `).join("");
const tokens = tokenMint();

/** Servers with one database, and what their tool was called for. */
async function stage(backend: "postgres" | "redis", settings: Readonly<Record<string, string>> = {}) {
  const store = await testDatabase();
  const redis = backend === "redis" ? await startRedis() : undefined;
  const folder = await mkdtemp(join(tmpdir(), "khala-resumed-"));
  const tool = join(folder, "calls");
  const servers: GatewayProcess[] = [];
  const headers = async () => ({
    authorization: `Bearer ${await tokens.mint("acme", "ada", { scopes: ["chat"] })}`,
    "content-type": "application/json",
  });
  return {
    async start(): Promise<GatewayProcess> {
      const env = {
        DATABASE_URL: store.url,
        ...(redis && { REDIS_URL: redis.url }),
        KHALA_AUTH_SECRETS: tokens.secrets,
        KHALA_DATABASE_POOL: "6",
        TOOL_FILE: tool,
        ...settings,
      };
      const server = await startGateway(env, "resumable.ts");
      servers.push(server);
      return server;
    },
    async chat(server: GatewayProcess, conv_id: string): Promise<void> {
      const body = JSON.stringify({ conv_id, message: `Count to ${COUNT}`, idempotency_key: conv_id });
      const response = await fetch(`${server.url}/chat`, { method: "POST", headers: await headers(), body });
      expect(response.status).toBe(202);
    },
    async get<T>(server: GatewayProcess, path: string): Promise<T> {
      return (await (await fetch(server.url + path, { headers: await headers() })).json()) as T;
    },
    calls: async () => (await readFile(tool, "utf8")).trim().split("\n").sort(),
    async [Symbol.asyncDispose]() {
      for (const server of servers) await server[Symbol.asyncDispose]();
      await redis?.[Symbol.asyncDispose]();
      await rm(folder, { recursive: true, force: true });
      await store[Symbol.asyncDispose]();
    },
  };
}

type Stage = Awaited<ReturnType<typeof stage>>;

const textOf = ({ messages = [] }: ConversationStateJson) =>
  (messages[1]?.parts ?? []).map(({ text = "" }) => text).join("");

const speaks = (on: Stage, server: GatewayProcess, conv: string) =>
  eventually(`${conv} speaks`, async () =>
    textOf(await on.get<ConversationStateJson>(server, `/chat/${conv}`)).includes(" 5 "),
  );

/** Every answer is whole, and every run has one start and one end. */
async function expectWhole(on: Stage, server: GatewayProcess, convs: readonly string[]): Promise<number> {
  let resumed = 0;
  for (const conv of convs) {
    const state = await eventually(`${conv} ends`, async () => {
      const now = await on.get<ConversationStateJson>(server, `/chat/${conv}`);
      return now.last_run && now;
    });
    expect.soft({ conv, status: state.last_run?.status, text: textOf(state) }).toEqual({
      conv,
      status: "finished",
      text: ANSWER,
    });
    const { events = [] } = await on.get<LogPageJson>(server, `/chat/${conv}/log?limit=1000`);
    const kinds = events.map(({ event }) => Object.keys(event as EventJson)[0]!);
    expect
      .soft(kinds.filter((kind) => /^run_(finished|failed|stopped)$/.test(kind)))
      .toEqual(["run_finished"]);
    expect.soft(kinds.filter((kind) => kind === "run_started")).toHaveLength(1);
    resumed += kinds.filter((kind) => kind === "run_resumed").length;
  }
  return resumed;
}

test.each([
  ["kill -9", "postgres"],
  ["kill -9", "redis"],
  ["SIGTERM without a drain", "postgres"],
  ["SIGTERM without a drain", "redis"],
] as const)("%s during an answer with a tool, on %s: another server completes it", async (how, backend) => {
  await using on = await stage(backend, { KHALA_DRAIN_MS: "0" });
  const [first, second] = [await on.start(), await on.start()];
  await on.chat(first, "c1");
  await speaks(on, second, "c1");
  await first.end(how === "kill -9" ? "SIGKILL" : "SIGTERM");
  expect(await expectWhole(on, second, ["c1"])).toBe(1);
  expect(await on.calls()).toEqual(["c1"]);
});

test.each([
  ["with the drain", "postgres", 200, {}],
  ["without a drain", "postgres", 200, { KHALA_DRAIN_MS: "0" }],
  ["with the drain", "redis", 20, {}],
  ["without a drain", "redis", 20, { KHALA_DRAIN_MS: "0" }],
] as const)(
  "three servers restarted one after the other, %s, on %s under %i answers: no answer fails, no word is lost",
  async (_, backend, count, settings) => {
    await using on = await stage(backend, settings);
    let servers = [await on.start(), await on.start(), await on.start()];
    const convs = Array.from({ length: count }, (_, i) => `c${i + 100}`);
    await Promise.all(convs.map((conv, i) => on.chat(servers[i % 3]!, conv)));
    await speaks(on, servers[0]!, convs.at(-1)!);
    for (const server of servers) {
      const next = await on.start();
      await server.end("SIGTERM");
      servers = [...servers.filter((other) => other !== server), next];
    }
    await expectWhole(on, servers[0]!, convs);
    expect(await on.calls()).toEqual(convs.toSorted());
  },
);
