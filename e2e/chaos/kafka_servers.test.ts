import { connect } from "node:net";
import { ownKafka, startKafka, startKafkaCluster } from "@khala/test-support/kafka/kafka";
import { newTopic, readTopic, values } from "@khala/test-support/kafka/topics";
import { eventually } from "@khala/test-support/kit/eventually";
import { startProgram } from "@khala/test-support/processes/programs";
import { describe, expect, test } from "vitest";
import { type KafkaClient, openKafkaClient } from "../../packages/kafka/src/client/client.ts";

const open = (bootstrap: string) => openKafkaClient({ bootstrap, clientId: "khala-test" });

async function send(client: KafkaClient, topic: string, text: string): Promise<void> {
  const producer = client.producer();
  await producer.connect();
  try {
    await producer.send({ topic, messages: [{ key: "k", value: text }] });
  } finally {
    await producer.disconnect();
  }
}

describe.runIf(ownKafka() !== undefined)("a test's own broker", () => {
  test("keeps its records through a kill and an orderly stop, at the same address", async () => {
    await using broker = await startKafka({ mortal: true });
    const client = await open(broker.bootstrap);
    const topic = await newTopic(client);
    await send(client, topic, "one");
    await broker.kill();
    await broker.restart();
    await send(client, topic, "two");
    await broker.stop();
    await broker.restart();
    expect(values(await readTopic(client, topic, 2))).toEqual(["one", "two"]);
  });

  test("answers nothing while it is suspended, and continues when it is resumed", async () => {
    await using broker = await startKafka();
    const client = await open(broker.bootstrap);
    const topic = await newTopic(client);
    const producer = client.producer();
    await producer.connect();
    await broker.pause();
    let acknowledged = false;
    const sent = producer.send({ topic, messages: [{ value: "late" }] }).then(() => {
      acknowledged = true;
    });
    // It takes the connection, by its kernel, and says nothing.
    const socket = connect(Number(broker.bootstrap.split(":")[1]), "127.0.0.1");
    await new Promise((resolve) => socket.once("connect", resolve));
    socket.destroy();
    expect(acknowledged).toBe(false);
    await broker.resume();
    await sent;
    await producer.disconnect();
    expect(values(await readTopic(client, topic, 1))).toEqual(["late"]);
  });

  test("ends with the process that started it, even if that is killed", async () => {
    await using program = startProgram("own_kafka", JSON.stringify(ownKafka()));
    const { bootstrap } = JSON.parse(await program.line()) as { bootstrap: string };
    const client = await open(bootstrap);
    await newTopic(client);
    program.child.kill("SIGKILL");
    await eventually("nobody listens there", () => refused(bootstrap));
  });

  test("a cluster of three continues without one, and takes it back", async () => {
    await using cluster = await startKafkaCluster(3);
    const client = await open(cluster.bootstrap);
    const topic = await newTopic(client, { replicationFactor: 3 });
    await send(client, topic, "three");
    await cluster.brokers[0]!.kill();
    await send(client, topic, "two");
    expect(values(await readTopic(client, topic, 2))).toEqual(["three", "two"]);
    await cluster.brokers[0]!.restart();
  });
});

function refused(address: string): Promise<boolean> {
  const [host, port] = address.split(":");
  return new Promise((resolve) => {
    const socket = connect(Number(port), host, () => {
      socket.destroy();
      resolve(false);
    });
    socket.once("error", () => resolve(true));
  });
}
