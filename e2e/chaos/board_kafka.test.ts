import { randomUUID } from "node:crypto";
import type { Artifact } from "@khala/server";
import { kafkaHere, ownKafka, startKafka, startKafkaCluster } from "@khala/test-support/kafka/kafka";
import { eventually } from "@khala/test-support/kit/eventually";
import { until } from "@khala/test-support/kit/until";
import { expectOnce, readBoard } from "@khala/test-support/steps/board_records";
import { afterEach, describe, expect, test, vi } from "vitest";
import { BoardChaos } from "./support/board_world_chaos.ts";

// Brokers and processes start and stop here, and groups take seconds to notice.
vi.setConfig({ testTimeout: 900_000, hookTimeout: 120_000 });

const AMOUNT = { keys: 20, each: 15 };
const LONG = { deadlineMs: 240_000 };
const AGENTS = ["writer", "reviewer", "publisher", "bomb"];

describe.runIf(kafkaHere() && ownKafka())("agents on Kafka", () => {
  let chaos: BoardChaos | undefined;
  let prefix: string;
  afterEach(async () => {
    await chaos?.[Symbol.asyncDispose]();
    chaos = undefined;
  });

  async function opened(bootstrap: string): Promise<BoardChaos> {
    prefix = `t${randomUUID().slice(0, 8)}.`;
    chaos = await BoardChaos.open({
      KAFKA_BOOTSTRAP_SERVERS: bootstrap,
      KAFKA_TOPIC_PREFIX: prefix,
      KAFKA_PARTITIONS: "4",
    });
    return chaos;
  }

  /** Waits until the servers show so many drafts. */
  const written = (servers: BoardChaos, goal: number) =>
    until(`${goal} drafts`, async () => (await servers.log("Draft")).length >= goal, LONG);

  /** Checks that the topics themselves have everything once; resolves with the artifacts in the order of their keys. */
  async function counted({ resent }: BoardChaos, bootstrap: string): Promise<Artifact[]> {
    const records = await readBoard(bootstrap, prefix, AGENTS);
    expectOnce(records, resent);
    const seen = new Set<string>();
    // What was sent twice may be there twice, and counts where it came first.
    return records.artifacts.filter(({ id }) => !(resent.has(id) && seen.has(id)) && seen.add(id));
  }

  async function checked(servers: BoardChaos, bootstrap: string): Promise<void> {
    const artifacts = await counted(servers, bootstrap);
    await servers.check(AMOUNT, async (type) => artifacts.filter((artifact) => artifact.type === type));
  }

  const unharmed = (servers: BoardChaos) => {
    for (const worker of servers.workers) expect(worker.running, worker.output()).toBe(true);
  };

  test("settles 300 artifacts while servers and the broker are killed, one is suspended, and one joins", async () => {
    await using broker = await startKafka({ mortal: true });
    const servers = await opened(broker.bootstrap);
    await servers.start();
    await servers.start();
    const published = servers.publish(AMOUNT, (count) => written(servers, count - 60));
    await written(servers, 20);
    // A third: partitions move while work is under way.
    await servers.start();
    await written(servers, 80);
    await servers.replace("SIGKILL");
    await written(servers, 120);
    await broker.kill();
    servers.brokerReturns = true;
    await broker.restart();
    await written(servers, 180);
    const sleeper = servers.take();
    sleeper.freeze();
    await published;
    await servers.settled(AMOUNT);
    sleeper.thaw();
    servers.workers.push(sleeper);
    await servers.replace("SIGTERM");
    await servers.settled(AMOUNT);
    await checked(servers, broker.bootstrap);
    unharmed(servers);
  });

  test("a process that dies around its side effect: the task runs again under the same key, with one visible output", async () => {
    await using broker = await startKafka();
    const servers = await opened(broker.bootstrap);
    await servers.front();
    const bombs = [{ moment: "before" }, { moment: "after" }];
    const ids: string[] = [];
    let victim = await servers.start();
    for (const [i, bomb] of bombs.entries()) {
      ids.push(await servers.bomb(bomb));
      await until("it blew up", () => !victim.running, LONG);
      victim = await servers.start();
      await until(`${i + 1} craters`, async () => (await servers.log("Crater")).length > i, LONG);
    }
    const runs = await servers.runs("bomb");
    const runsOf = (id: string) => runs.filter((key) => key.startsWith(`${id}:bomb@`)).length;
    expect(ids.map(runsOf)).toEqual([1, 2]);
    await eventually("nothing is left to do", async () => {
      const { agents } = await servers.insist<{ agents: { waiting: string; running: string }[] }>("/agents");
      return agents.every(({ waiting, running }) => waiting === "0" && running === "0");
    });
    const artifacts = await counted(servers, broker.bootstrap);
    expect(artifacts.filter(({ type }) => type === "Crater")).toHaveLength(bombs.length);
  });

  test("a server stops promptly while its broker is gone", async () => {
    await using broker = await startKafka();
    const servers = await opened(broker.bootstrap);
    const server = await servers.start();
    await servers.publish({ keys: 20, each: 10 }, async () => {});
    await written(servers, 20);
    await broker.kill();
    // With transactions that cannot be decided, and readers that cannot leave.
    const ended = server.end("SIGTERM");
    await until("it is gone", () => !server.running, { deadlineMs: 30_000 });
    await ended;
    expect([0, "SIGTERM"]).toContain(server.ending);
  });

  test("a cluster of three loses a broker in the middle", async () => {
    await using cluster = await startKafkaCluster(3);
    const servers = await opened(cluster.bootstrap);
    await servers.start();
    await servers.start();
    const published = servers.publish(AMOUNT, (count) => written(servers, count - 60));
    await written(servers, 60);
    await cluster.brokers[0]!.kill();
    await published;
    await servers.settled(AMOUNT);
    await checked(servers, cluster.bootstrap);
    unharmed(servers);
  });
});
