import { agent } from "@khala/server";
import { eventually } from "@khala/testing/kit/eventually";
import { BACKENDS } from "@khala/testing/servers/backends";
import { ADA, boardServers, personOf, stands } from "@khala/testing/servers/board_servers";
import { describe, expect, test } from "vitest";

describe.each(BACKENDS)("on %s", (backend) => {
  test("every legal org and correlation id has its document", async () => {
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

  test("inputs of one org that fail do not stop the agent for another", async () => {
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
});
