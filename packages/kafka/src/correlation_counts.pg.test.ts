import { describe, expect, test } from "vitest";
import { eventually } from "../../../e2e/support/eventually.ts";
import { kafkaHere } from "../../../e2e/support/kafka.ts";
import { kafkaBoard } from "../../../e2e/support/kafka_board.ts";
import { Heard, makeTestArtifact, routeByTags, rules } from "../../server/src/conformance/board_support.ts";

describe.runIf(kafkaHere())("the counts of a correlation", () => {
  test("have something open as long as one of its artifacts is not routed, also if nobody wants it", async () => {
    await using under = await kafkaBoard();
    const parts = { agents: [rules("agent")], route: routeByTags, observer: new Heard() };
    const board = await under.open({ ...parts, routes: false });
    await board.publish([makeTestArtifact({ correlation_id: "c" })]);
    for (const _ of ["once", "again"])
      expect(await board.correlations([{ org: "acme", name: "c" }])).toMatchObject([
        { artifacts: 1, open: 1, done: 0 },
      ]);
    await under.open({ ...parts, routes: true });
    await eventually(
      "it is routed",
      async () => (await board.correlations([{ org: "acme", name: "c" }]))[0]?.open === 0,
    );
    await board.publish([makeTestArtifact({ to: "agent", correlation_id: "c" })]);
    await eventually("its task is there", async () => {
      const [counts] = await board.correlations([{ org: "acme", name: "c" }]);
      expect(counts?.open).toBe(1);
      return (await board.counts())[0]?.waiting === 1;
    });
    expect(await board.correlations([{ org: "acme", name: "c" }])).toMatchObject([
      { artifacts: 2, open: 1, done: 0 },
    ]);
  });
});
