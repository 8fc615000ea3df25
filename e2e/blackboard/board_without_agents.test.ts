import { eventually } from "@khala/test-support/kit/eventually";
import { BACKENDS } from "@khala/test-support/servers/backends";
import { boardServers, listed, publish, stands } from "@khala/test-support/servers/board_servers";
import { describe, expect, test } from "vitest";

describe.each(BACKENDS)("on %s", { timeout: 120_000 }, (backend) => {
  test("an app without agents publishes without end: nothing waits, and nothing lags", async () => {
    await using servers = await boardServers(backend);
    const settings = { KHALA_BOARD_LAG_SLOW: "1", KHALA_BOARD_LAG_REFUSE: "2" };
    const khala = await servers.start({ agents: [], settings });
    for (let payload = 0; payload < 5; payload++)
      await publish(khala, { type: "Note", payload, correlation_id: "c" });
    await stands(khala, "c", "done");
    await eventually("nothing lags", async () => {
      const lags = await khala.blackboard.lag();
      return lags.every(({ lag }) => lag === "0");
    });
    expect(await listed(khala, "Note")).toHaveLength(5);
  });
});
