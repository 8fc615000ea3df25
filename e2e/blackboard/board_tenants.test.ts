import { agent, type Caller } from "@khala/server";
import { eventually } from "@khala/test-support/kit/eventually";
import { testViewer } from "@khala/test-support/kit/viewer";
import { BACKENDS } from "@khala/test-support/servers/backends";
import { ADA, boardServers, EVE, personOf, stands } from "@khala/test-support/servers/board_servers";
import { describe, expect, test } from "vitest";

describe.each(BACKENDS)("on %s", (backend) => {
  test("every legal org and correlation id has a document", async () => {
    await using servers = await boardServers(backend);
    const reader = agent("reader", { consumes: "Note", run: () => {} });
    const khala = await servers.start({ agents: [reader] });
    const names = [
      ["Acme Inc", "hello world"],
      ["co:x", "a:b"],
      ["co", "x:a:b"],
      ["acme", "é".repeat(256)],
    ] as const;
    for (const [org, correlation_id] of names)
      await khala.blackboard.publish(personOf(org, "ada"), [{ type: "Note", payload: null, correlation_id }]);
    await eventually("a document for each correlation", async () => {
      const rows = await servers.database.query<{ org: string; payload: Buffer }>({
        text: "SELECT org_id AS org, payload FROM runtime.sync_board_correlations",
      });
      const done = rows.map(({ org, payload }) => {
        const { correlation_id, status } = JSON.parse(payload.toString());
        return `${org} ${correlation_id} ${status}`;
      });
      return names.every(([org, id]) => done.includes(`${org} ${id} done`));
    });
    expect(khala.blackboard.problems()).toEqual([]);
  });

  test("failing inputs of one org do not stop the agent for another", async () => {
    await using servers = await boardServers(backend);
    const runs: string[] = [];
    const reader = agent("reader", {
      consumes: "Note",
      order: "none",
      retry: { attempts: 2, base: 10, cap: 20 },
      run({ artifact, attempt }) {
        if (artifact.org_id === "acme") return;
        runs.push(`${artifact.id} ${attempt}`);
        throw new Error("This input fails.");
      },
    });
    const khala = await servers.start({ agents: [reader] });
    const eve = personOf("evil", "eve");
    const notes = Array.from({ length: 12 }, () => ({ type: "Note", payload: null }));
    await khala.blackboard.publish(eve, notes);
    await eventually("the breaker of the org is open", async () => {
      const [state] = await khala.blackboard.agents(eve);
      return state?.state === "open";
    });
    const [state] = await khala.blackboard.agents(ADA);
    expect(state).toMatchObject({ name: "reader", state: "running" });
    await khala.blackboard.publish(ADA, [{ type: "Note", payload: null, correlation_id: "c" }]);
    await stands(khala, "c", "done");
    expect(new Set(runs).size).toBe(runs.length);
  });

  test("a correlation is controlled by its initiator, and by operators of its org", async () => {
    await using servers = await boardServers(backend);
    const writer = agent("writer", { consumes: "Topic", run: () => ({ type: "Draft", payload: null }) });
    const { blackboard } = await servers.start({ agents: [writer] });
    const bob = personOf("acme", "bob");
    const operator = testViewer({ subject: "olga", scopes: ["ops"] });
    const foreign = testViewer({ org: "evil", scopes: ["blackboard:write", "ops"] });
    await blackboard.publish(ADA, [{ type: "Topic", payload: null, correlation_id: "c" }]);
    await blackboard.publish(bob, [{ type: "Note", payload: null, correlation_id: "c" }]);
    const [alone] = await blackboard.publish(ADA, [{ type: "Topic", payload: null }]);
    const later = {
      type: "Note",
      payload: null,
      correlation_id: "later",
      not_before: "2100-01-01T00:00:00Z",
    };
    await blackboard.publish(ADA, [later]);
    for (const name of ["c", alone!.id!, "later"]) {
      for (const caller of [bob, foreign]) {
        for (const control of ["pauseCorrelation", "cancel", "resumeCorrelation"] as const)
          await expect(blackboard[control](caller, name)).rejects.toMatchObject({ code: "not_found" });
      }
      await blackboard.pauseCorrelation(operator, name);
      await blackboard.resumeCorrelation(ADA, name);
      await blackboard.cancel(ADA, name);
    }
    await expect(blackboard.cancel(operator, "nothing")).rejects.toMatchObject({ code: "not_found" });
  });

  test("an artifact whose id is a correlation's name gives no control over it", async () => {
    await using servers = await boardServers(backend);
    const { blackboard } = await servers.start({ agents: [] });
    const bob = personOf("acme", "bob");
    const name = "0192c7a0-0000-7000-8000-000000000001";
    await blackboard.publish(ADA, [{ type: "Topic", payload: null, correlation_id: name }]);
    await blackboard.publish(bob, [{ id: name, type: "Note", payload: null }]);
    await expect(blackboard.cancel(bob, name)).rejects.toMatchObject({ code: "not_found" });
    await blackboard.cancel(ADA, name);
  });

  test("publishing into a correlation that is scheduled gives no control over it", async () => {
    await using servers = await boardServers(backend);
    const { blackboard } = await servers.start({ agents: [] });
    const bob = personOf("acme", "bob");
    const later = (hours: number) => ({ not_before: new Date(Date.now() + hours * 3_600_000).toISOString() });
    const note = { type: "Note", payload: null, correlation_id: "c" };
    await blackboard.publish(ADA, [{ ...note, ...later(2) }]);
    await blackboard.publish(bob, [{ ...note, ...later(1) }]);
    await expect(blackboard.cancel(bob, "c")).rejects.toMatchObject({ code: "not_found" });
    await blackboard.publish(bob, [note]);
    await eventually("the artifact is in the correlation", async () => {
      const { artifacts } = (await blackboard.correlation(ADA, "c"))!;
      return artifacts === "1";
    });
    await expect(blackboard.cancel(bob, "c")).rejects.toMatchObject({ code: "not_found" });
    await blackboard.cancel(ADA, "c");
    expect(await blackboard.correlation(ADA, "c")).not.toHaveProperty("waits");
  });

  test("waiting workers of one org do not keep tasks from another's", async () => {
    await using servers = await boardServers(backend);
    const { blackboard } = await servers.start({
      agents: [agent("remote", { consumes: "Errand" })],
      settings: { KHALA_BOARD_POLL_MS: "60000" },
    });
    const leaving = new AbortController();
    const ask = { worker: "w", max: 1, waitMs: 60_000 };
    const waiting = Array.from({ length: 1_000 }, () => blackboard.claim(EVE, "remote", ask, leaving.signal));
    await expect(blackboard.claim(EVE, "remote", ask, leaving.signal)).rejects.toMatchObject({
      code: "limit_exceeded",
    });
    const claimed = blackboard.claim(ADA, "remote", ask, leaving.signal);
    await blackboard.publish(ADA, [{ type: "Errand", payload: null }]);
    expect(await claimed).toHaveLength(1);
    leaving.abort();
    await Promise.all(waiting);
  });

  test("an approval rule may exclude the requester, and require a scope", async () => {
    await using servers = await boardServers(backend);
    const rule = { not: "requester", scope: "finance" } as const;
    const planner = agent("planner", { consumes: "Bill", run: () => ({ type: "Payment", payload: null }) });
    const payer = agent("payer", { consumes: "Payment", approval: () => rule, run: () => {} });
    const { blackboard } = await servers.start({ agents: [planner, payer] });
    const withScope = (subject: string) =>
      testViewer({ subject, scopes: ["blackboard:read", "blackboard:write", "finance"] });
    await blackboard.publish(personOf("acme", "carl"), [
      { type: "Note", payload: null, correlation_id: "c" },
    ]);
    await blackboard.publish(ADA, [
      { type: "Payment", payload: "her own", correlation_id: "a" },
      { type: "Bill", payload: "by an agent", correlation_id: "b" },
      { type: "Bill", payload: "in what another one started", correlation_id: "c" },
    ]);
    const pending = await eventually("three approvals", async () => {
      const approvals = await blackboard.approvals(ADA);
      return approvals.length === 3 && approvals;
    });
    for (const { id = "" } of pending) {
      const decide = (caller: Caller) => blackboard.decide(caller, id, { approved: true });
      await expect(decide(personOf("acme", "bob"))).rejects.toMatchObject({ code: "missing_scope" });
      await expect(decide(withScope("ada"))).rejects.toMatchObject({ code: "subject_mismatch" });
      await expect(decide(EVE)).rejects.toMatchObject({ code: "not_found" });
    }
    expect(await blackboard.approvals(ADA)).toHaveLength(3);
    for (const { id = "" } of pending) await blackboard.decide(withScope("bob"), id, { approved: true });
    expect(await blackboard.approvals(ADA)).toEqual([]);
  });

  test("an output may replace artifacts its agent made or its reader sees, and nothing private beside", async () => {
    await using servers = await boardServers(backend);
    const named = agent("named", {
      consumes: "Topic",
      run: ({ artifact }) => ({
        type: "Draft",
        ...(artifact.payload as { id: string; version: number }),
        payload: "replaced",
      }),
    });
    const remote = agent("remote", { consumes: "Raw" });
    const khala = await servers.start({ agents: [named, remote] });
    const { blackboard } = khala;
    const bob = personOf("acme", "bob");
    const worker = testViewer({ subject: "w", scopes: ["blackboard:work:*"] });
    const secret = {
      type: "Note",
      payload: "mine",
      visibility: { kind: "private", agents: ["named"] },
    };
    const [hidden, owned] = await blackboard.publish(ADA, [secret, secret]);
    const replace = { id: hidden!.id!, version: 2 };

    await blackboard.publish(bob, [{ type: "Topic", payload: replace, correlation_id: "named" }]);
    await stands(khala, "named", "failed");
    await blackboard.publish(bob, [{ type: "Raw", payload: null, correlation_id: "remote" }]);
    const ask = { worker: "w", max: 1, waitMs: 20_000 };
    const [claim] = await blackboard.claim(worker, "remote", ask, new AbortController().signal);
    const outputs = [{ type: "Draft", payload: "replaced", ...replace }];
    const answer = await blackboard.settle(worker, claim!.claim_id!, { outputs });
    // The worker is not told why.
    expect(answer).toEqual({ status: "dead" });
    expect(await blackboard.get(ADA, hidden!.id!)).toMatchObject({ version: 1, payload: "mine" });
    for (const name of ["named", "remote"]) {
      const { deadLetters } = await blackboard.deadLetters(bob, name, { limit: 10 });
      expect(deadLetters).toMatchObject([
        {
          failure: { class: "InvalidOutputError", message: expect.stringContaining("There is no artifact") },
        },
      ]);
    }

    const mine = { type: "Topic", payload: { id: owned!.id!, version: 2 }, correlation_id: "owned" };
    await blackboard.publish(ADA, [{ ...mine, visibility: secret.visibility }]);
    await stands(khala, "owned", "done");
    const again = { ...mine, payload: { id: owned!.id!, version: 3 }, correlation_id: "again" };
    await blackboard.publish(bob, [again]);
    await stands(khala, "again", "done");
    expect(await blackboard.get(ADA, owned!.id!)).toMatchObject({ version: 3, produced_by: "agent:named" });
  });
});

test("refuses an org that publishes too fast, and no other", async () => {
  await using servers = await boardServers();
  const { blackboard } = await servers.start({ agents: [], settings: { KHALA_BOARD_PUBLISH_RATE: "2" } });
  const note = { type: "Note", payload: null };
  await expect(blackboard.publish(EVE, [note, note, note])).rejects.toMatchObject({
    code: "limit_exceeded",
    details: { field: "board_artifacts", retry_after_ms: expect.any(Number) },
  });
  expect(await blackboard.publish(ADA, [note])).toHaveLength(1);
});
