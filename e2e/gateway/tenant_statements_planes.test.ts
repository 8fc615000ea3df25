import { randomUUID } from "node:crypto";
import { agent, createKhala, FatalError, readConfig } from "@khala/server";
import { scripted } from "@khala/server/engines";
import { RawClient } from "@khala/test-support/clients/clients";
import { eventually } from "@khala/test-support/kit/eventually";
import {
  functionBodies,
  StatementRecorder,
  type SystemStatement,
  sourceStatements,
  tenantTables,
  unboundUses,
} from "@khala/test-support/postgres/tenant_statements";
import { testDatabase } from "@khala/test-support/postgres/test_database";
import { expect, test, vi } from "vitest";
import type * as DatabaseModule from "../../packages/server/src/database/database.ts";

const recorder = vi.hoisted(() => ({ watch: undefined as ((database: object) => object) | undefined }));
vi.mock("../../packages/server/src/database/database.ts", async (original) => {
  const real = await original<typeof DatabaseModule>();
  return {
    ...real,
    openDatabase(options: Parameters<typeof real.openDatabase>[0]) {
      const database = real.openDatabase(options);
      return recorder.watch?.(database) ?? database;
    },
  };
});

/** The tables of the event log and the sync plane have a test of their own. */
const SYNC = /^(event_streams|events|sync_\w+)$/;

/** What runs for all orgs at once, or by an id that no client chooses. The rows that they read carry their org. */
const SYSTEM: readonly SystemStatement[] = [
  {
    statement:
      /^(purge_board_\w+|board_purge_\w+|board_claim_sweep|audit_retention|durable_streams_sweep(_gone)?|janitor_\w+)$/,
    reason: "retention removes the rows of all orgs by their age",
  },
  { statement: /^revocations$/, reason: "every server knows what is revoked in all orgs" },
  {
    statement: /^(revocations|stored_bytes)_orgs$/,
    reason: "the platform sees which orgs use something of a quota",
  },
  {
    statement: /^stored_bytes_(begin|gone)$/,
    reason: "what all orgs store is counted again, a plane at a time",
  },
  { statement: /^revoke$/, reason: "it also removes what has expired; the revocation itself names the org" },
  {
    statement: /^board_controls_changed$/,
    reason: "every server follows pauses in the order of their numbers",
  },
  { statement: /^board_set_aside_count$/, reason: "health and metrics name no org: a count" },
  {
    statement: /^board_(outbox|gather)_(next|claim|finish|release|members|correlations)$/,
    reason: "a sweep claims due rows of all orgs in the order of time, and finishes them by their numbers",
  },
  {
    statement: /^approval_changes_claim$/,
    reason: "a server claims changes of all orgs, and finishes each by its org",
  },
  {
    statement: /^board_(claim_offered|claimable|counts|totals|outputs|router_lock|unrouted|unrouted_count)$/,
    reason: "agents and the router work for all orgs, and lags and totals for the platform name none",
  },
  {
    statement: /^board_(claim_lapse|claim_renew|held|renew|release)$/,
    reason: "a server renews and releases what it holds, by its own name",
  },
  {
    statement: /^board_claim_(find|task|held|heartbeat|settle|end|outcome|give_back)$/,
    reason: "the id of a claim is a random UUID, and access decides by the org of the claim that was found",
  },
  {
    statement: /^conversation_(seize|waiting|unreported|next_expiry)$/,
    reason: "a server takes over the runs of all orgs from a server that died",
  },
  {
    statement:
      /^UPDATE runtime\.conversations SET lease_until = now\(\) WHERE run_id IS NOT NULL AND holder = \$1/,
    reason: "a server that stops gives up all of its leases",
  },
  {
    statement: /^durable_streams_(written|keep_alive|poll)$/,
    reason: "by the number of a stream that was found by org and path",
  },
];

/** The same for functions of the database. */
const SYSTEM_FUNCTIONS: readonly SystemStatement[] = [
  {
    statement: /^board_put$/,
    reason: "it asks whether anything waits for the router; what it adds names the org",
  },
  { statement: /^board_claim(_of)?$/, reason: "claims take turns between all orgs" },
  {
    statement: /^board_settle$/,
    reason: "a task is settled by its number and its holder; the next of its lane by its org",
  },
  {
    statement: /^board_gather$/,
    reason: "members are found by the number of a group that was found by org and key",
  },
];

const agents = [
  agent("writer", {
    consumes: "Idea",
    run: ({ artifact }) => ({ type: "Draft", id: randomUUID(), payload: artifact.payload }),
  }),
  agent("failing", {
    consumes: "Bad",
    run() {
      throw new FatalError("no");
    },
  }),
  agent("retrying", {
    consumes: "Flaky",
    retry: { attempts: 3, base: 1, cap: 2 },
    run({ attempt }) {
      if (attempt === 1) throw new Error("again");
    },
  }),
  agent("signer", { consumes: "Contract", approval: true, run: () => {} }),
  agent("joiner", {
    consumes: ["Left", "Right"],
    join: { types: ["Left", "Right"], within: 60_000 },
    run: () => {},
  }),
  agent("dropper", { consumes: ["Up", "Down"], join: { types: ["Up", "Down"], within: 1 }, run: () => {} }),
  agent("remote", { consumes: "Errand" }),
];

test("every statement of conversations, durable streams and the board on a tenant's table names the org", async () => {
  await using own = await testDatabase();
  const record = new StatementRecorder();
  recorder.watch = (database) => record.watch(database as DatabaseModule.Database);
  const config = readConfig({
    DATABASE_URL: own.url,
    KHALA_PORT: "0",
    KHALA_LOG_LEVEL: "silent",
    KHALA_AUTH_SECRETS: `test:${Buffer.alloc(32, 7).toString("base64")}`,
    KHALA_BOARD_POLL_MS: "50",
  });
  const engine = scripted({ script: ({ message }) => [{ text_delta: { text: `You said: ${message}` } }] });
  const app = { models: [], agents, engine };
  const khala = await createKhala(app, { config, dev: true });
  try {
    const scopes = [
      "chat",
      "blackboard:read",
      "blackboard:write",
      "blackboard:work:*",
      "ops",
      "platform",
      "blackboard.correlations",
    ];
    const { token } = await khala.auth.issuer!.mint({ sub: "ada", org_id: "acme", scopes, ttl_s: 900 });
    const call = async (
      method: string,
      path: string,
      body?: unknown,
      headers: Record<string, string> = {},
    ) => {
      const type = typeof body === "string" ? "text/plain" : "application/json";
      const response = await fetch(khala.url + path, {
        method,
        headers: {
          authorization: `Bearer ${token}`,
          ...(body !== undefined && { "content-type": type }),
          ...headers,
        },
        ...(body !== undefined && { body: typeof body === "string" ? body : JSON.stringify(body) }),
      });
      const text = await response.text();
      expect(response.status, `${method} ${path}: ${text}`).toBeLessThan(300);
      return text.startsWith("{") ? JSON.parse(text) : text;
    };

    // Conversations.
    await using socket = await RawClient.connect(`${khala.url.replace("http", "ws")}/socket`, { token });
    await socket.push("conversation:talk", "phx_join", {});
    for (const message of ["one", "two"])
      await call(
        "POST",
        "/chat",
        { conv_id: "talk", message, policy: "queue" },
        { "idempotency-key": message },
      );
    await eventually("the answers", async () =>
      JSON.stringify(await call("GET", "/chat/talk/log")).includes("You said: two"),
    );
    for (const path of ["/chat", "/chat/talk", "/ops/v1/conversations", "/ops/v1/failed-runs"])
      await call("GET", path);
    await call("DELETE", "/chat/talk");

    // Durable streams.
    await call("PUT", "/streams/a", "");
    await call("POST", "/streams/a", "x");
    const produced = { "producer-id": "p", "producer-epoch": "0", "producer-seq": "0" };
    await call("POST", "/streams/a", "y", produced);
    await call("GET", "/streams/a");
    await call("DELETE", "/streams/a");

    // The board.
    const publish = (...artifacts: object[]) => call("POST", "/blackboard/v1/artifacts", { artifacts });
    const id = randomUUID();
    const correlation_id = "c";
    await publish(
      { type: "Idea", id, payload: 1, correlation_id },
      { type: "Bad", payload: 1, correlation_id },
      { type: "Flaky", payload: 1, correlation_id, partition_key: "k" },
      { type: "Contract", payload: 1, correlation_id },
      { type: "Left", payload: 1, correlation_id },
      { type: "Right", payload: 1, correlation_id },
      { type: "Up", payload: 1, correlation_id },
      { type: "Errand", payload: 1, correlation_id },
    );
    await publish({ type: "Idea", id, payload: 1, correlation_id });
    await publish(
      { type: "Note", payload: 1, correlation_id: "later", not_before: "2100-01-01T00:00:00Z" },
      { type: "Idea", id, payload: "another", correlation_id },
      { type: "Note", payload: 1, correlation_id },
    );
    const items = await eventually("an item that is set aside", async () => {
      const { items } = await call("GET", "/ops/v1/set-aside");
      return items.length > 0 && items;
    });
    await call("POST", `/ops/v1/set-aside/${items[0].id}/retry`);
    const again = await eventually("the item again", async () => {
      const { items } = await call("GET", "/ops/v1/set-aside");
      return items.length > 0 && items;
    });
    await call("DELETE", `/ops/v1/set-aside/${again[0].id}`);
    const { claims } = await call("POST", "/blackboard/v1/agents/remote/claim", {
      worker: "w",
      max: 1,
      wait_ms: 10_000,
    });
    await call("POST", `/blackboard/v1/claims/${claims[0].claim_id}/heartbeat`, {});
    await call("POST", `/blackboard/v1/claims/${claims[0].claim_id}/settle`, { outputs: [] });
    const approval = await eventually("the approval", async () => {
      const { approvals } = await call("GET", "/blackboard/v1/approvals");
      return approvals[0];
    });
    await call("POST", `/blackboard/v1/approvals/${approval.id}`, { approved: true });
    const letter = await eventually("the dead letter", async () => {
      const { dead_letters } = await call("GET", "/blackboard/v1/dead-letters/failing");
      return dead_letters[0];
    });
    await call("GET", `/blackboard/v1/dead-letters/failing/${letter.id}`);
    await call("GET", `/blackboard/v1/dead-letters/failing?correlation_id=${correlation_id}`);
    await call("POST", `/blackboard/v1/dead-letters/failing/${letter.id}/replay`, {});
    await call("POST", "/blackboard/v1/correlations/c/pause", {});
    await publish({ type: "Idea", payload: 2, correlation_id });
    await eventually("a parked task", async () => {
      const { waits } = await call("GET", "/blackboard/v1/correlations/c");
      return Number(waits?.paused ?? 0) > 0;
    });
    await call("POST", "/blackboard/v1/correlations/c/resume", {});
    await call("POST", "/blackboard/v1/correlations/later/cancel", {});
    await call("POST", "/blackboard/v1/agents/writer/pause", {});
    await call("POST", "/blackboard/v1/agents/writer/resume", {});
    await call("POST", "/blackboard/v1/agents/writer/cancel", {});
    for (const path of ["artifacts", "artifacts?correlation_id=c", `artifacts/${id}`, "agents", "lag"])
      await call("GET", `/blackboard/v1/${path}`);
    for (const path of ["/ops/v1/audit", "/ops/v1/overview", "/metrics", "/readyz"]) await call("GET", path);
    await call("POST", "/api/sync/revoke", { jti: "some" });
  } finally {
    await khala.stop();
  }

  const tables = new Set([...(await tenantTables(own.database))].filter((table) => !SYNC.test(table)));
  expect(tables.size).toBeGreaterThan(15);
  expect(record.statements.size).toBeGreaterThan(100);
  expect(unboundUses(record.statements, tables, SYSTEM)).toEqual([]);
  const written = sourceStatements(
    "packages/server/src/{access,blackboard,conversations,database,durable_streams,gateway,main}/**/*.ts",
  );
  expect(written.size).toBeGreaterThan(100);
  expect(unboundUses(written, tables, SYSTEM)).toEqual([]);
  const functions = new Map([...(await functionBodies(own.database))].map(([name, body]) => [body, name]));
  expect(unboundUses(functions, tables, SYSTEM_FUNCTIONS)).toEqual([]);
  // An entry that matches nothing any more is removed.
  const seen = [...record.statements.values(), ...written.values()];
  expect(SYSTEM.filter(({ statement }) => !seen.some((each) => statement.test(each)))).toEqual([]);
  const names = [...functions.values()];
  expect(SYSTEM_FUNCTIONS.filter(({ statement }) => !names.some((each) => statement.test(each)))).toEqual([]);
});
