import { kafkaHere, ownKafka } from "@khala/test-support/kafka/kafka";
import { errorIn, type KafkaRequest } from "@khala/test-support/kafka/wire";
import { until } from "@khala/test-support/kit/until";
import type { Trap } from "@khala/test-support/processes/step_proxy";
import {
  StepStage,
  startWatchedBroker,
  type WatchedBroker,
} from "@khala/test-support/steps/board_step_stage";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";

// Each waits for brokers to notice that a process is gone, some of them many times: they run at once.
vi.setConfig({ testTimeout: 900_000, hookTimeout: 120_000, maxConcurrency: 4 });

const ROLES = ["router", "agent"] as const;
/** What a transaction is made of. */
const REQUESTS: readonly KafkaRequest[] = [
  "AddPartitionsToTxn",
  "Produce",
  "AddOffsetsToTxn",
  "TxnOffsetCommit",
  "EndTxn",
];
const SLEEPS = [
  { what: "its commit", name: "EndTxn", by: "the next owner of its transactional id", other: "same" },
  { what: "its offsets", name: "TxnOffsetCommit", by: "its group", other: "another" },
] as const;
const LONG = { deadlineMs: 120_000 };
/** What a process says whose transaction was refused. */
const REFUSED = /will be tried again|could not be processed|reader of the board failed/;

describe.runIf(kafkaHere() && ownKafka()).concurrent("a process of a board on Kafka", () => {
  let broker: WatchedBroker;
  beforeAll(async () => {
    broker = await startWatchedBroker();
  });
  afterAll(() => broker?.[Symbol.asyncDispose]());

  const caught = (trap: Trap, what: string) => until(what, () => trap.caught, LONG);

  test.for(ROLES)(
    "%s: killed at each step of its transaction, commits everything or nothing",
    async (role) => {
      await using stage = await StepStage.open(broker, role);
      let last = "the start";
      for (const name of REQUESTS)
        for (const moment of ["before", "after"] as const) {
          const step = `${moment}-${name}`;
          // It finishes what the one before has left.
          const victim = await stage.start(step, role);
          await stage.settled(last);
          const trap = broker.proxy.trap({ client: stage.named(step), name, moment, holds: "client" });
          await stage.publish();
          await caught(trap, `${role} ${step}`);
          await victim.end("SIGKILL");
          last = step;
        }
      await stage.start("last", role);
      await stage.settled(last);
      await stage.expectExact();
    },
  );

  test.for(ROLES.flatMap((role) => SLEEPS.map((sleep) => ({ role, ...sleep }))))(
    "$role: suspended at $what, wakes up fenced by $by, settles nothing of it, and continues",
    async ({ role, name, other }) => {
      await using stage = await StepStage.open(broker, role);
      const sleeper = await stage.start("sleeper", "same");
      const client = stage.named("sleeper");
      const trap = broker.proxy.trap({ client, name, moment: "before", holds: "client" });
      await stage.publish();
      await caught(trap, `${role} at its ${name}`);
      sleeper.freeze();
      const rescuer = await stage.start("rescuer", other);
      await stage.settled("the takeover");
      sleeper.thaw();
      trap.release();
      await until("it says so", () => REFUSED.test(sleeper.output()), LONG);
      // It may find that out before it asks.
      if (trap.answer) expect(errorIn(trap.answer, name)).not.toBe(0);
      await rescuer.end("SIGTERM");
      await stage.publish();
      await stage.settled("it went on alone");
      await stage.expectExact();
      expect(sleeper.running, sleeper.output()).toBe(true);
    },
  );

  test.for(ROLES)("%s: partitions move during its commit", async (role) => {
    await using stage = await StepStage.open(broker, role);
    const first = await stage.start("first", "first");
    const client = stage.named("first");
    await stage.publish();
    await stage.settled("the start");
    const trap = broker.proxy.trap({ client, name: "EndTxn", moment: "before", holds: "connection" });
    await stage.publish();
    await caught(trap, `${role} at its commit`);
    const says = stage.named(role === "router" ? "router" : "agent.");
    const joins = broker.proxy.trap({
      client,
      name: "SyncGroup",
      says,
      moment: "after",
      holds: "connection",
    });
    const second = await stage.start("second", "second");
    await caught(joins, "the group has a new generation");
    joins.release();
    trap.release();
    await stage.publish();
    await stage.settled("partitions moved");
    await stage.expectExact();
    for (const process of [first, second]) expect(process.running, process.output()).toBe(true);
  });
});
