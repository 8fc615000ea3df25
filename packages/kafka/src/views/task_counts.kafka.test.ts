import { kafkaHere } from "@khala/test-support/kafka/kafka";
import { ManualClock } from "@khala/test-support/kit/manual_clock";
import { describe, expect, test } from "vitest";
import { openClusterOffsets } from "../client/cluster_offsets.ts";
import { AGENTS, artifact, openStage, type Stage, task } from "../test_support.ts";
import { taskRecord } from "../topics/records.ts";
import { openTaskCounts } from "./task_counts.ts";

async function open(stage: Stage, limits: Parameters<typeof openTaskCounts>[2]) {
  const { settings, names } = stage;
  const clock = new ManualClock();
  const offsets = await openClusterOffsets(stage.context, settings.kafka);
  const options = { offsets, settings, names, agents: AGENTS };
  const counts = openTaskCounts({ ...stage.context, clock }, options, limits);
  return {
    clock,
    waiting: async (org: string) => Object.fromEntries(await counts.waiting(org)),
    async [Symbol.asyncDispose]() {
      await counts.stop();
      await offsets.stop();
    },
  };
}

const tasks = (org_id: string, agent: string, count: number) =>
  Array.from({ length: count }, () => taskRecord(task({ agent, artifacts: [artifact({ org_id })] })));

describe.runIf(kafkaHere()).concurrent("whose tasks wait", () => {
  test("counts each org's own, whatever the orgs are called and however they are mixed", async () => {
    await using stage = await openStage();
    await using counts = await open(stage, {});
    expect(await counts.waiting("co:x")).toEqual({});
    const { tasks: topic } = stage.names;
    await stage.write(topic("reviewer"), ...tasks("co:x", "reviewer", 3), ...tasks("co", "reviewer", 2));
    await stage.write(topic("writer"), ...tasks("co:x", "writer", 1));
    expect(await counts.waiting("co:x")).toEqual({ reviewer: 3, writer: 1 });
    expect(await counts.waiting("co")).toEqual({ reviewer: 2 });
    // Nobody asks for a while: the next one reads what is there again.
    await counts.clock.advance(60_000);
    await stage.write(topic("writer"), ...tasks("co", "writer", 1));
    expect(await counts.waiting("co")).toEqual({ reviewer: 2, writer: 1 });
    expect(await counts.waiting("co:x")).toEqual({ reviewer: 3, writer: 1 });
  });

  test("counts the newest tasks of a partition up to a bound", async () => {
    await using stage = await openStage({ partitions: 1 });
    await using counts = await open(stage, { maxOpen: 10 });
    await counts.waiting("acme");
    await stage.write(stage.names.tasks("writer"), ...tasks("acme", "writer", 50));
    const { writer } = await counts.waiting("acme");
    expect(writer).toBeGreaterThanOrEqual(9);
    expect(writer).toBeLessThanOrEqual(10);
  });
});
