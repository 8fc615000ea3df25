import {
  Heard,
  makeTestArtifact,
  range,
  routeByTags,
  rules,
} from "@khala/test-support/conformance/board/support";
import { start, Worker } from "@khala/test-support/conformance/board/worker";
import { ownKafka, startKafkaCluster } from "@khala/test-support/kafka/kafka";
import type { KafkaCluster, KafkaServer } from "@khala/test-support/kafka/server";
import { testContext } from "@khala/test-support/kit/context";
import { until } from "@khala/test-support/kit/until";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { openPlainAdmin } from "../../packages/kafka/src/client/plain_admin.ts";
import { openBoard } from "../../packages/kafka/src/open_board.ts";
import type { Board } from "../../packages/server/src/blackboard/board.ts";

const LONG = { deadlineMs: 120_000 };

describe.runIf(ownKafka())("a broker suspended until the cluster has given it up", () => {
  // One that is alone would tell the client that there are no brokers, and then the client looks for none any more.
  let cluster: KafkaCluster;
  beforeAll(async () => {
    cluster = await startKafkaCluster(3);
  });
  afterAll(() => cluster[Symbol.asyncDispose]());

  test.each([{ transactions: true }, { transactions: false }])(
    "is found again: everything is routed, done and committed, with %o",
    { timeout: 900_000 },
    async ({ transactions }) => {
      const heard = new Heard();
      const opened = async (seed: number): Promise<Board> =>
        openBoard(await testContext({ seed, onWarning() {} }), {
          agents: [rules("agent")],
          route: routeByTags,
          observer: heard,
          kafka: { bootstrap: cluster.bootstrap, clientId: `process-${seed}` },
          prefix: transactions ? "transacted." : "plain.",
          transactions,
          partitions: 6,
          replication: 3,
          producers: 2,
          retryDelaysMs: [1_000],
          sessionTimeoutMs: 6_000,
        });
      const boards = [await opened(1), await opened(2)] as const;
      const worker = new Worker("agent");
      const working = start(worker, ...boards);
      const ids: string[] = [];
      for (const [at, broker] of cluster.brokers.entries()) {
        const publishing = insistOn(
          boards[0],
          range(1, 10).map(() => range(1, 5).map(() => makeTestArtifact({ to: "agent" }))),
          ids,
        );
        // Each time while something else is on its way.
        await until("it has begun", () => ids.length >= 50 * at + 5 * at, LONG);
        await broker.pause();
        await givenUp(cluster, broker);
        await broker.resume();
        await publishing;
        await until("nobody lags", async () => (await lagging(boards[1]))?.length === 0, LONG);
      }
      expect(new Set(worker.runs.map(({ task }) => task.id))).toEqual(new Set(ids));
      // Without transactions a consumer that does not hear in time that its offset was taken tells nobody that it is done.
      if (transactions)
        expect(
          heard
            .settledBy("agent")
            .map(({ task }) => task.id)
            .toSorted(),
        ).toEqual(ids.toSorted());
      await working.stop();
      for (const board of boards) await board.stop();
    },
  );
});

/** Waits until the others no longer count on it. */
async function givenUp(cluster: KafkaCluster, broker: KafkaServer): Promise<void> {
  const others = cluster.brokers.filter((other) => other !== broker);
  const bootstrap = others.map((other) => other.bootstrap).join(",");
  const admin = await openPlainAdmin({ bootstrap, clientId: "onlooker" });
  const counted = () =>
    admin.metadata({ topics: [], forceUpdate: true }).then(
      ({ brokers }) => brokers.size,
      // The controller may be the one that stands still, until another takes over.
      () => undefined,
    );
  try {
    await until("the cluster has given it up", async () => (await counted()) === others.length, LONG);
  } finally {
    await admin.close();
  }
}

/** Publishes them one after the other, each until it is taken. */
async function insistOn(
  board: Board,
  batches: readonly ReturnType<typeof makeTestArtifact>[][],
  ids: string[],
) {
  for (const batch of batches) {
    await until(
      "it is taken",
      () =>
        board.publish(batch).then(
          () => true,
          () => false,
        ),
      LONG,
    );
    ids.push(...batch.map(({ id }) => id));
  }
}

/** Who has something left to read; undefined while the broker does not say. */
async function lagging(board: Board) {
  const lags = await board.lag().catch(() => undefined);
  return lags?.filter(({ lag }) => lag !== "0");
}
