import { randomUUID } from "node:crypto";
import { type Artifact, agent, FatalError } from "@khala/server";
import { eventually } from "@khala/test-support/kit/eventually";
import { JumpClock } from "@khala/test-support/kit/jump_clock";
import { BACKENDS } from "@khala/test-support/servers/backends";
import {
  ADA,
  arrived,
  boardServers,
  buried,
  EVE,
  Held,
  idle,
  listed,
  publish,
  stands,
} from "@khala/test-support/servers/board_servers";
import { describe, expect, test } from "vitest";
import { z } from "zod";
import type { Caller } from "../../packages/server/src/blackboard/plane.ts";

const HOUR = 3_600_000;

test("lists cover FLOCK_INDEX_WINDOW artifacts, also by type, and older ones are found by id", async () => {
  await using servers = await boardServers();
  const khala = await servers.start({ agents: [], settings: { FLOCK_INDEX_WINDOW: "5" } });
  const drafts = ["Odd", "Even", "Odd", "Even", "Odd", "Even", "Odd"].map((type, payload) => ({
    type,
    payload,
  }));
  const [oldest] = await publish(khala, ...drafts);
  const payloads = async (query: { readonly type?: string; readonly limit: number }) =>
    (await khala.blackboard.recent(ADA, query)).map(({ payload }) => payload);
  expect(await payloads({ limit: 1_000 })).toEqual([6, 5, 4, 3, 2]);
  expect(await payloads({ type: "Odd", limit: 1_000 })).toEqual([6, 4, 2]);
  expect(await payloads({ type: "Odd", limit: 2 })).toEqual([6, 4]);
  // Another org's artifacts take no room in it.
  await khala.blackboard.publish(EVE, drafts);
  expect(await payloads({ limit: 1_000 })).toEqual([6, 5, 4, 3, 2]);
  expect(await khala.blackboard.get(ADA, oldest!)).toMatchObject({ type: "Odd", payload: 0 });
});

describe.each(BACKENDS)("on %s", { timeout: 120_000 }, (backend) => {
  describe("waiting work survives a restart", () => {
    test("a join with one half before the restart, and the other after it", async () => {
      await using servers = await boardServers(backend);
      const pair = agent("pair", {
        consumes: ["Left", "Right"],
        join: { types: ["Left", "Right"], within: HOUR },
        run: ({ artifacts }) => ({ type: "Pair", payload: artifacts.map(({ payload }) => payload) }),
      });
      const before = await servers.start({ agents: [pair] });
      await publish(before, { type: "Left", payload: 1, correlation_id: "c" });
      await eventually("the half waits", async () => (await stands(before, "c", "waiting")).done === "1");
      await servers.stop(before);
      const after = await servers.start({ agents: [pair] });
      await publish(after, { type: "Right", payload: 2, correlation_id: "c" });
      const [made] = await arrived(after, "Pair");
      expect(made).toMatchObject({ payload: [1, 2], correlation_id: "c", depth: 1 });
      expect(await stands(after, "c", "done")).toMatchObject({ artifacts: "3", dead: "0" });
    });

    test("a batch whose time ran out while no server ran", async () => {
      await using servers = await boardServers(backend);
      const clock = new JumpClock();
      const packer = agent("packer", {
        consumes: "Item",
        batch: { size: 10, timeout: HOUR },
        run: ({ artifacts }) => ({ type: "Box", payload: artifacts.map(({ payload }) => payload) }),
      });
      const before = await servers.start({ agents: [packer], clock });
      await publish(before, ...[1, 2, 3].map((payload) => ({ type: "Item", payload, correlation_id: "c" })));
      await eventually(
        "all three wait",
        async () => (await stands(before, "c", "waiting")).artifacts === "3",
      );
      await servers.stop(before);
      clock.jump(HOUR + 1);
      const after = await servers.start({ agents: [packer], clock });
      const [box] = await arrived(after, "Box");
      expect(box!.payload).toEqual([1, 2, 3]);
      await publish(after, ...Array.from({ length: 10 }, (_, payload) => ({ type: "Item", payload })));
      const boxes = await arrived(after, "Box", 2);
      // In no order: Kafka knows nothing of the clock that was put forward.
      expect(new Set(boxes.map(({ payload }) => (payload as []).length))).toEqual(new Set([3, 10]));
    });

    test("the next server runs a task that was running at the stop, and its output is published once", async () => {
      await using servers = await boardServers(backend);
      const held = new Held();
      const keys: string[] = [];
      const slow = agent("slow", {
        consumes: "Job",
        async run({ artifact, idempotencyKey }, signal) {
          keys.push(idempotencyKey);
          if (keys.length === 1) await held.wait(artifact.id, signal);
          return { type: "Result", payload: null };
        },
      });
      const before = await servers.start({ agents: [slow], settings: { KHALA_BOARD_LEASE_MS: "1000" } });
      const [id] = await publish(before, { type: "Job", payload: 1 });
      await eventually("it runs", () => keys.length);
      await servers.stop(before);
      const after = await servers.start({ agents: [slow] });
      expect(await arrived(after, "Result")).toHaveLength(1);
      await idle(after, "slow");
      expect(keys).toEqual([`${id}:slow@acme`, `${id}:slow@acme`]);
      expect(await listed(after, "Result")).toHaveLength(1);
    });
  });

  describe("time", () => {
    test("not_before publishes at that time, and not before", async () => {
      await using servers = await boardServers(backend);
      const clock = new JumpClock();
      const reader = agent("reader", { consumes: "Letter", run: () => ({ type: "Answer", payload: null }) });
      const khala = await servers.start({ agents: [reader], clock });
      const later = { type: "Letter", payload: 1, not_before: new Date(clock.now() + HOUR).toISOString() };
      const [{ id, status } = {}] = await khala.blackboard.publish(ADA, [later]);
      expect(status).toBe("scheduled");
      await publish(khala, { type: "Letter", payload: 2 });
      await arrived(khala, "Answer");
      expect(await khala.blackboard.get(ADA, id!)).toBeUndefined();
      clock.jump(HOUR + 1);
      await arrived(khala, "Answer", 2);
      expect(await khala.blackboard.get(ADA, id!)).toMatchObject({ payload: 1 });
    });

    test("a schedule fires once per time with two servers", async () => {
      await using servers = await boardServers(backend);
      const clock = new JumpClock();
      // Far from now, so that none comes by itself while this runs.
      const hour = (new Date(clock.now()).getUTCHours() + 12) % 24;
      const parts = {
        agents: [agent("news", { consumes: "Morning", run: () => ({ type: "Paper", payload: null }) })],
        schedules: [
          {
            name: "daily",
            cron: `0 ${hour} * * *`,
            org: "acme",
            artifact: { type: "Morning", payload: { hot: true } },
          },
        ],
        clock,
      };
      const [one, two] = [await servers.start(parts), await servers.start(parts)];
      for (let day = 1; day <= 3; day++) {
        clock.jump(24 * HOUR);
        await arrived(day % 2 ? one : two, "Paper", day);
      }
      const mornings = await listed(one, "Morning");
      expect(mornings).toHaveLength(3);
      for (const morning of mornings)
        expect(morning).toMatchObject({
          produced_by: "schedule:daily",
          payload: { hot: true },
          org_id: "acme",
        });
    });
  });
});

describe("chains", () => {
  test("a chain ends at the depth limit with a dead letter that names it", async () => {
    await using servers = await boardServers();
    const ping = agent("ping", { consumes: "Ping", run: () => ({ type: "Pong", payload: null }) });
    const pong = agent("pong", { consumes: "Pong", run: () => ({ type: "Ping", payload: null }) });
    const khala = await servers.start({ agents: [ping, pong], settings: { KHALA_BOARD_DEPTH: "5" } });
    await publish(khala, { type: "Ping", payload: null, correlation_id: "loop" });
    const [letter] = await buried(khala, "pong", 1);
    expect(letter!.failure).toMatchObject({ class: "ChainTooLongError", kind: "fatal" });
    expect(letter!.failure.message).toContain("KHALA_BOARD_DEPTH");
    expect(await stands(khala, "loop", "failed")).toMatchObject({ artifacts: "6", done: "5", dead: "1" });
  });

  test("an agent does not consume its own output, unless selfTrigger is set", async () => {
    await using servers = await boardServers();
    const next = (payload: unknown) => ({ type: "Step", payload: Number(payload) - 1 });
    const shy = agent("shy", { consumes: "Step", run: ({ artifact }) => next(artifact.payload) });
    const counter = agent("counter", {
      consumes: "Count",
      selfTrigger: true,
      run: ({ artifact }) =>
        Number(artifact.payload) > 0 ? { ...next(artifact.payload), type: "Count" } : undefined,
    });
    const khala = await servers.start({ agents: [shy, counter] });
    await publish(khala, { type: "Step", payload: 3, correlation_id: "shy" });
    await publish(khala, { type: "Count", payload: 3, correlation_id: "count" });
    expect(await stands(khala, "shy", "done")).toMatchObject({ artifacts: "2", done: "1" });
    await arrived(khala, "Count", 4);
    expect(await stands(khala, "count", "done")).toMatchObject({ artifacts: "4", done: "4" });
  });
});

describe("visibility", () => {
  const seen = (name: string, labels?: readonly string[]) =>
    agent(name, {
      consumes: "Note",
      ...(labels && { labels }),
      run: ({ artifact }) => ({ type: `Seen.${name}`, payload: artifact.payload }),
    });

  test("private, labelled, org and public artifacts reach the agents and people they are for", async () => {
    await using servers = await boardServers();
    const khala = await servers.start({
      agents: [seen("anyone"), seen("named"), seen("cleared", ["secret"])],
    });
    const visibilities = {
      private: { kind: "private", agents: ["named"] },
      labelled: { kind: "labelled", labels: ["secret"] },
      org: { kind: "org" },
      public: { kind: "public" },
    };
    const ids = await publish(
      khala,
      ...Object.entries(visibilities).map(([payload, visibility]) => ({ type: "Note", payload, visibility })),
    );
    for (const [name, count] of [
      ["anyone", 2],
      ["named", 3],
      ["cleared", 3],
    ] as const)
      await arrived(khala, `Seen.${name}`, count);
    for (const name of ["anyone", "named", "cleared"]) await idle(khala, name);
    const payloads = async (type: string) =>
      (await listed(khala, type)).map(({ payload }) => payload as string).sort();
    expect(await payloads("Seen.anyone")).toEqual(["org", "public"]);
    expect(await payloads("Seen.named")).toEqual(["org", "private", "public"]);
    expect(await payloads("Seen.cleared")).toEqual(["labelled", "org", "public"]);

    const readable = async ({ org, subject }: Caller) => {
      const wish = { sub: subject, org_id: org, scopes: ["blackboard:read"] };
      const { token } = await khala.auth.issuer!.mint(wish);
      const headers = { authorization: `Bearer ${token}` };
      const answers = await Promise.all(
        ids.map((id) => fetch(`${khala.url}/blackboard/v1/artifacts/${id}?org_id=acme`, { headers })),
      );
      const found = answers.filter(({ status }) => status !== 404);
      return Promise.all(found.map(async (answer) => ((await answer.json()) as Artifact).payload));
    };
    expect(await readable(ADA)).toEqual(["private", "labelled", "org", "public"]);
    expect(await readable({ ...ADA, subject: "bob" })).toEqual(["org", "public"]);
    expect(await readable(EVE)).toEqual(["public"]);
    const names = (found: readonly { payload: unknown }[]) => found.map(({ payload }) => payload);
    const bob = { ...ADA, subject: "bob" };
    expect(names(await listed(khala, "Note", bob))).toEqual(["org", "public"]);
    // Also behind many that are not for him.
    const visibility = { kind: "private", agents: ["named"] };
    await publish(
      khala,
      ...Array.from({ length: 40 }, (_, payload) => ({ type: "Note", payload, visibility })),
    );
    const last = await khala.blackboard.recent(bob, { type: "Note", limit: 2 });
    expect(names(last)).toEqual(["public", "org"]);
  });

  test.each(BACKENDS)(
    "refuses to replace an artifact the caller may not read, and separates ids of two orgs, on %s",
    async (backend) => {
      await using servers = await boardServers(backend);
      const { blackboard } = await servers.start({ agents: [seen("anyone")] });
      const bob = { ...ADA, subject: "bob" };
      const secret = { type: "Note", payload: "secret", visibility: { kind: "private", agents: ["anyone"] } };
      const [{ id }] = (await blackboard.publish(ADA, [secret])) as [{ id: string }];
      const draft = (version: number) => ({ id, version, type: "Note", payload: "forged" });
      for (const version of [1, 2, 2 ** 31 - 1]) {
        const later = { ...draft(version), not_before: "2999-01-01T00:00:00Z" };
        for (const each of [draft(version), later])
          await expect(blackboard.publish(bob, [{ type: "Note", payload: 1 }, each])).rejects.toMatchObject({
            code: "not_found",
          });
      }
      expect(await blackboard.recent(bob, { type: "Note", limit: 10 })).toEqual([]);
      expect(await blackboard.publish(EVE, [draft(2 ** 31 - 1)])).toMatchObject([{ status: "published" }]);
      expect(await blackboard.get(ADA, id)).toMatchObject({ payload: "secret", version: 1 });
      expect(await blackboard.get(EVE, id)).toMatchObject({ payload: "forged" });
      expect(await blackboard.publish(ADA, [{ ...secret, id, version: 2 }])).toMatchObject([
        { status: "published" },
      ]);
      expect(await blackboard.get(ADA, id)).toMatchObject({ payload: "secret", version: 2 });
    },
  );

  test("dead letters and approvals hide payload and error from callers who may not read the artifact", async () => {
    await using servers = await boardServers();
    const agents = [
      agent("broken", {
        consumes: "Bad",
        run({ artifact }) {
          throw new FatalError(`cannot read ${artifact.payload}`);
        },
      }),
      agent("careful", { consumes: "Deal", approval: true, run: () => ({ type: "Closed", payload: null }) }),
    ];
    const khala = await servers.start({ agents });
    const { blackboard } = khala;
    const visibility = { kind: "private", agents: ["broken", "careful"] };
    await publish(khala, { type: "Bad", payload: "secret", visibility });
    await publish(khala, { type: "Deal", payload: "secret", visibility });
    const [own] = await buried(khala, "broken", 1);
    expect(own).toMatchObject({ failure: { message: "cannot read secret" } });
    const bob = { ...ADA, subject: "bob" };
    const approvals = (caller: Caller) =>
      eventually("it waits for a person", async () => {
        const waiting = await blackboard.approvals(caller);
        return waiting.length > 0 && waiting;
      });
    const told = async (caller: Caller) => [
      (await blackboard.deadLetters(caller, "broken", { limit: 10 })).deadLetters[0],
      await blackboard.deadLetter(caller, "broken", own!.id),
      (await approvals(caller))[0],
    ];
    for (const each of await told(ADA))
      expect(each).toMatchObject({ task: { artifacts: [{ payload: "secret" }] } });
    const others = await told(bob);
    expect(others).toMatchObject([
      { id: own!.id, attempts: 1 },
      { id: own!.id },
      { task: { agent: "careful" } },
    ]);
    expect(JSON.stringify(others)).not.toContain("secret");
    // It can be replayed all the same, with the payload that it has.
    await blackboard.replay(bob, "broken", own!.id);
    expect(await buried(khala, "broken", 2)).toMatchObject([
      { failure: { message: "cannot read secret" } },
      { failure: { message: "cannot read secret" } },
    ]);
  });

  test("another org sees and changes no artifact, dead letter, correlation or approval", async () => {
    await using servers = await boardServers();
    const agents = [
      agent("broken", {
        consumes: "Bad",
        run() {
          throw new FatalError("no");
        },
      }),
      agent("careful", { consumes: "Deal", approval: true, run: () => ({ type: "Closed", payload: null }) }),
    ];
    const { blackboard, ...khala } = await servers.start({ agents });
    const all = { blackboard, ...khala };
    const [bad] = await publish(all, { type: "Bad", payload: 1, correlation_id: "c" });
    await publish(all, { type: "Deal", payload: 1, correlation_id: "d" });
    const [letter] = await buried(all, "broken", 1);
    const [approval] = await eventually("it waits for a person", async () => {
      const waiting = await blackboard.approvals(ADA);
      return waiting.length > 0 && waiting;
    });

    expect(await blackboard.get(EVE, bad!)).toBeUndefined();
    expect(await listed(all, "Bad", EVE)).toEqual([]);
    expect((await blackboard.deadLetters(EVE, "broken", { limit: 10 })).deadLetters).toEqual([]);
    expect(await blackboard.deadLetter(EVE, "broken", letter!.id)).toBeUndefined();
    expect(await blackboard.correlation(EVE, "c")).toBeUndefined();
    // Also when it uses the same name for something of its own.
    await blackboard.publish(EVE, [{ type: "Other", payload: 1, correlation_id: "c" }]);
    await eventually("it has its own", async () => {
      const state = await blackboard.correlation(EVE, "c");
      return state?.status === "done" && state.artifacts === "1" && state.dead === "0";
    });
    expect(await blackboard.approvals(EVE)).toEqual([]);
    await expect(blackboard.replay(EVE, "broken", letter!.id)).rejects.toMatchObject({ code: "not_found" });
    await expect(blackboard.decide(EVE, approval!.id!, { approved: true })).rejects.toMatchObject({
      code: "not_found",
    });
    expect(await blackboard.replayAll(EVE, "broken", {})).toEqual({ replayed: 0, already_replayed: 0 });
    expect(await blackboard.resumeCorrelation(EVE, "c")).toBe(0);
    await expect(blackboard.cancel(EVE, "d")).rejects.toMatchObject({ code: "not_found" });
    await blackboard.decide(ADA, approval!.id!, { approved: true });
    await arrived(all, "Closed");
    expect(await stands(all, "c", "failed")).toMatchObject({ dead: "1" });
  });
});

test("publishes none of three artifacts if one payload is wrong, and names it", async () => {
  await using servers = await boardServers();
  const schemas = { Draft: z.object({ words: z.number() }) };
  const khala = await servers.start({ agents: [], schemas });
  const ids = [randomUUID(), randomUUID(), randomUUID()];
  const drafts = [1, "two", 3].map((words, i) => ({ id: ids[i]!, type: "Draft", payload: { words } }));
  await expect(khala.blackboard.publish(ADA, drafts)).rejects.toMatchObject({
    code: "invalid_request",
    details: { field: "artifacts[1].payload.words", items: [{ index: 1, field: "payload.words" }] },
  });
  expect(await listed(khala, "Draft")).toEqual([]);
  for (const id of ids) expect(await khala.blackboard.get(ADA, id)).toBeUndefined();
});
