import { agent } from "@khala/server";
import { eventually } from "@khala/testing/kit/eventually";
import { BACKENDS } from "@khala/testing/servers/backends";
import { boardServers, personOf } from "@khala/testing/servers/board_servers";
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
});
