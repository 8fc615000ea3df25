import {
  eventually,
  Heard,
  makeTestArtifact,
  newName,
  numbered,
  range,
  routeByTags,
  rules,
} from "@khala/test-support/conformance/board/support";
import { done, payloadOf, retry, start, Worker } from "@khala/test-support/conformance/board/worker";
import { kafkaHere } from "@khala/test-support/kafka/kafka";
import { type KafkaBoard, kafkaBoard } from "@khala/test-support/kafka/kafka_board";
import { type Program, startProgram } from "@khala/test-support/processes/programs";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { KafkaBoardSettings } from "../../packages/kafka/src/settings.ts";
import type { Board } from "../../packages/server/src/blackboard/board.ts";
import type { Artifact } from "../../packages/server/src/blackboard/model/artifact.ts";

const AGENTS = [rules("agent"), rules("strict", { strict: true })];

// Each waits until the session of a process that is gone has timed out.
describe.skipIf(!kafkaHere())("a process on Kafka", () => {
  let under: KafkaBoard;
  let heard: Heard;
  beforeEach(async () => {
    under = await kafkaBoard();
    heard = new Heard();
  });
  afterEach(() => under[Symbol.asyncDispose]());

  const open = (given: Partial<KafkaBoardSettings> = {}) =>
    under.open({ agents: AGENTS, route: routeByTags, observer: heard }, given);

  function program(name: string, mode: string, agent = "agent", ms = ""): Program {
    return startProgram("kafka_worker", under.bootstrap, under.prefix, name, agent, mode, ms);
  }

  async function line(worker: Program, pattern: RegExp): Promise<string> {
    for (;;) {
      const text = await worker.line();
      if (pattern.test(text)) return text;
    }
  }

  /** The outputs that are visible. */
  const made = (board: Board) => board.recent({ org: "acme", type: "Made", limit: 100 });

  test("that was suspended while another took over its tasks settles nothing when it wakes", async () => {
    const board = await open();
    await using sleeper = program("sleeper", "late", "agent", "3000");
    await line(sleeper, /^ready/);
    await board.publish([makeTestArtifact({ to: "agent", partition_key: newName("k") })]);
    await line(sleeper, /^ran/);
    sleeper.child.kill("SIGSTOP");
    await using rival = program("sleeper", "done");
    await line(rival, /^settled \S+ done/);
    sleeper.child.kill("SIGCONT");
    // It continues as a new member: each later task is settled once, by its owner.
    await board.publish(range(1, 8).map(() => makeTestArtifact({ to: "agent" })));
    await eventually(async () => expect((await made(board)).length).toBeGreaterThanOrEqual(9));
    expect(await made(board)).toHaveLength(9);
  });

  test("that crashes after its work and before it settles runs the task again under one key, with one visible output", async () => {
    const board = await open();
    const artifact = makeTestArtifact({ to: "agent" });
    await using crashing = program("crashing", "die");
    await line(crashing, /^ready/);
    await board.publish([artifact]);
    expect(await line(crashing, /^ran/)).toBe(`ran ${artifact.id} 1`);
    await crashing.ended;
    await using next = program("next", "done");
    expect(await line(next, /^ran/)).toBe(`ran ${artifact.id} 1`);
    await line(next, /^settled/);
    await eventually(async () => expect(await made(board)).toHaveLength(1));
  });

  test("that crashes runs only the unsettled task again, and not settled ones behind it", async () => {
    const board = await open();
    await using first = program("first", "first");
    await line(first, /^ready/);
    const slow = makeTestArtifact({ to: "agent" });
    await board.publish([slow]);
    await line(first, /^ran/);
    await board.publish(range(1, 60).map(() => makeTestArtifact({ to: "agent" })));
    for (const _ of range(1, 60)) await line(first, /^settled/);
    first.child.kill("SIGKILL");
    const next = new Worker("agent", () => done(makeTestArtifact({ type: "Made" })));
    await using _ = start(next, board);
    await eventually(() => expect(heard.settledBy("agent")).toHaveLength(1));
    await next.ran(1);
    expect(next.runs[0]!.task.id).toBe(slow.id);
    await eventually(async () => expect(await made(board)).toHaveLength(61));
  });

  test("that crashes between two attempts of a strict agent keeps the count and the order", async () => {
    const board = await open();
    const key = newName("k");
    await using first = program("first", "retry", "strict", "3000");
    await line(first, /^ready/);
    await board.publish(numbered("strict", key, 3));
    await line(first, /^settled \S+ retry/);
    first.child.kill("SIGKILL");
    const worker = new Worker(AGENTS[1]!, (task) =>
      task.attempt < 4 && payloadOf(task) === 1 ? retry(20) : done(),
    );
    await using _ = start(worker, board);
    await eventually(() => expect(worker.payloads(key)).toContain(3));
    const [attempt] = worker.attempts(key);
    expect(attempt).toBeGreaterThan(1);
    expect(worker.payloads(key)).toEqual([...range(attempt!, 4).map(() => 1), 2, 3]);
  });

  test("that shares its transactional id with another loses no task, and logs the problem", async () => {
    const [a, b] = [await open({ transactionalId: "twin" }), await open({ transactionalId: "twin" })];
    const worker = new Worker("agent");
    await using _ = start(worker, a, b);
    const published: Artifact[] = [];
    // Each publishes in turn, and so takes the id from the other.
    for (const artifact of range(1, 12).map(() => makeTestArtifact({ to: "agent" })))
      for (const board of [a, b])
        await board.publish([artifact]).then(
          () => published.push(artifact),
          (error: unknown) => expect(error).toMatchObject({ code: "unavailable" }),
        );
    const ids = new Set(published.map(({ id }) => id));
    await eventually(() => expect(new Set(heard.settledBy("agent").map(({ task }) => task.id))).toEqual(ids));
    expect(heard.settledBy("agent")).toHaveLength(ids.size);
  });
});
