import type { ClaimJson } from "@khala/contracts/blackboard/v1";
import type { ConversationStateJson, TranscriptMessageJson } from "@khala/contracts/conversation/v1";
import { agent, createKhala, defineApp, type Khala, readConfig } from "@khala/server";
import { until } from "@khala/test-support/kit/until";
import { testDatabase } from "@khala/test-support/postgres/test_database";
import { type TestRedis, testRedis } from "@khala/test-support/redis/redis";
import { BACKENDS, backendSettings } from "@khala/test-support/servers/backends";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";

vi.setConfig({ testTimeout: 120_000, hookTimeout: 180_000 });

const refused: string[] = [];
let attempts = 0;

/** Fails once after it has posted: its message is there once all the same. */
const looker = agent("looker", {
  consumes: "Question",
  retry: { base: 1 },
  async run({ artifact, conversation, attempt }) {
    if (!conversation) {
      refused.push(String(artifact.payload));
      return undefined;
    }
    attempts = attempt;
    await conversation.post({ message: { text: `Looking for ${artifact.payload}` } });
    if (attempt === 1) throw new Error("the first attempt fails");
    return { type: "Found", payload: artifact.payload };
  },
});
/** What it consumes was published by another agent, not by the run. */
const teller = agent("teller", {
  consumes: "Found",
  async run({ artifact, conversation }) {
    await conversation?.post(
      { message: { message_id: `told-${artifact.id}`, text: `Found ${artifact.payload}` } },
      { custom: { message_id: `told-${artifact.id}`, name: "result", data: { n: 1 } } },
    );
    return { type: "Report", payload: artifact.payload };
  },
});
/** Its work is done outside of the server. */
const reporter = agent("reporter", { consumes: "Report" });

const app = defineApp({
  agents: [looker, teller, reporter],
  engine: () => ({
    async *run(turn) {
      await turn.publish([{ type: "Question", payload: turn.message }]);
      yield { text_delta: { text: "I ask around." } };
    },
  }),
});

let redis: TestRedis;
beforeAll(async () => {
  redis = await testRedis();
});
afterAll(() => redis[Symbol.asyncDispose]());

const WORKS = "blackboard:work:*";
const textsOf = ({ messages = [] }: ConversationStateJson) =>
  messages.map(({ author, role, parts }: TranscriptMessageJson) => [author ?? "", role, parts![0]!.text]);

describe.each(BACKENDS)("agents on %s", (backend) => {
  test.each(["Postgres", "Redis"])(
    "post to the conversation that their work belongs to, on %s",
    async (log) => {
      await using database = await testDatabase();
      const khala: Khala = await createKhala(app, {
        config: readConfig({
          DATABASE_URL: database.url,
          KHALA_PORT: "0",
          ...(log === "Redis" && { REDIS_URL: redis.url }),
          ...(await backendSettings(backend)),
        }),
        dev: true,
      });
      try {
        const convId = `c-${backend}-${log}`;
        const tokens = new Map<string, string>();
        const call = async (method: string, path: string, body?: object, sub = "ada") => {
          if (!tokens.has(sub)) {
            const scopes = ["chat", "blackboard:read", "blackboard:write", WORKS];
            const minted = await fetch(`${khala.url}/api/sync/token`, {
              method: "POST",
              headers: { "content-type": "application/json" },
              body: JSON.stringify({ sub, org_id: "acme", scopes }),
            });
            tokens.set(sub, ((await minted.json()) as { token: string }).token);
          }
          const headers = {
            authorization: `Bearer ${tokens.get(sub)}`,
            ...(body && { "content-type": "application/json" }),
          };
          return fetch(`${khala.url}${path}`, {
            method,
            headers,
            ...(body && { body: JSON.stringify(body) }),
          });
        };
        const state = async () =>
          (await (await call("GET", `/chat/${convId}`)).json()) as ConversationStateJson;
        await call("POST", "/chat", { conv_id: convId, message: "otters" });
        const claim = () =>
          until("the last task", async () => {
            const answer = await call("POST", "/blackboard/v1/agents/reporter/claim", {
              worker: "w",
              wait_ms: 500,
            });
            const { claims } = (await answer.json()) as { claims: ClaimJson[] };
            return claims[0];
          });
        const claimed = await claim();
        expect(claimed.task!.artifacts![0]!.conversation).toMatchObject({ conv_id: convId });
        const events = [{ message: { message_id: "by-worker", text: "Reported" } }];
        const path = `/blackboard/v1/claims/${claimed.claim_id}/events`;
        expect((await call("POST", path, { events })).status).toBe(204);
        // Sent again because its answer was lost: there once.
        expect((await call("POST", path, { events })).status).toBe(204);
        await call("POST", `/blackboard/v1/claims/${claimed.claim_id}/settle`, { outputs: [] });
        expect((await call("POST", path, { events })).status).toBe(409);

        const texts = textsOf(await state());
        expect(texts[0]).toEqual(["ada", "user", "otters"]);
        expect(texts.slice(1).sort()).toEqual(
          [
            ["", "assistant", "I ask around."],
            ["agent:looker", "assistant", "Looking for otters"],
            ["agent:reporter", "assistant", "Reported"],
            ["agent:teller", "assistant", "Found otters"],
          ].sort(),
        );
        expect(attempts).toBe(2);

        // Nothing else may: not what somebody publishes with the same correlation, and not what says so itself.
        const correlation_id = claimed.task!.artifacts![0]!.correlation_id!;
        const drafts = { artifacts: [{ type: "Question", payload: "eve", correlation_id }] };
        expect((await call("POST", "/blackboard/v1/artifacts", drafts, "eve")).status).toBe(201);
        const forged = { type: "Question", payload: "eve", conversation: { conv_id: convId } };
        expect((await call("POST", "/blackboard/v1/artifacts", forged, "eve")).status).toBe(400);
        await until("the agent's attempt", () => refused.includes("eve"));
        refused.length = 0;
        expect(textsOf(await state())).toHaveLength(texts.length);

        // A conversation that is created again under this name is another one.
        await call("POST", "/chat", { conv_id: convId, message: "seals", policy: "queue" });
        const late = await claim();
        expect((await call("DELETE", `/chat/${convId}`)).status).toBe(204);
        await call("POST", "/chat", { conv_id: convId, message: "whales" });
        const afterwards = `/blackboard/v1/claims/${late.claim_id}/events`;
        expect((await call("POST", afterwards, { events })).status).toBe(404);
      } finally {
        await khala.stop();
      }
    },
  );
});
