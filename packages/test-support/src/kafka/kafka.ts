import { get } from "node:http";
import { text } from "node:stream/consumers";
import { inject } from "vitest";
import type { KafkaBinary } from "./binary.ts";
import { type KafkaCluster, type KafkaServer, startKafkaServer, startKafkaServers } from "./server.ts";
import type { KafkaHere } from "./service.ts";
import type { KafkaOptions } from "./settings.ts";

// A file that imports this one waits here, outside the limits of its tests, until the run has Kafka's parts: minutes
// on a machine that has none of them.
const lookup = inject("services")?.kafka?.LOOKUP;
const here = lookup === undefined ? undefined : (JSON.parse(await ask("/here")) as KafkaHere);

/** Whether this run has a Kafka to share, and the client. */
export function kafkaHere(): boolean {
  return here !== undefined;
}

/** How tests can start brokers of their own; undefined where they cannot. */
export function ownKafka(): KafkaBinary | undefined {
  return here?.binary;
}

/** The address of the broker shared by all files of a run: each test must use its own topic and group names. */
export async function sharedKafka(): Promise<string> {
  return ask("/shared");
}

/** Starts a broker that belongs to the test. */
export async function startKafka(options?: KafkaOptions): Promise<KafkaServer> {
  return startKafkaServer(binary(), options);
}

/** Starts a cluster that belongs to the test: three copies of everything, of which two must be in sync. */
export async function startKafkaCluster(count = 3, options?: KafkaOptions): Promise<KafkaCluster> {
  return startKafkaServers(binary(), count, { mortal: true, ...options });
}

function binary() {
  if (!here?.binary) throw new Error("This run has no Kafka that a test could start.");
  return here.binary;
}

/** Asks the global setup, which does the slow work once for all files. */
async function ask(path: string): Promise<string> {
  if (lookup === undefined)
    throw new Error("There is no Kafka in this run. Only *.pg.test.ts files and those in e2e/ get one.");
  const { promise, resolve, reject } = Promise.withResolvers<{ status: number; body: string }>();
  // Not fetch(), which gives up after five minutes.
  get(`${lookup}${path}`, (response) => {
    text(response).then((body) => resolve({ status: response.statusCode ?? 0, body }), reject);
  }).once("error", reject);
  const { status, body } = await promise;
  if (status !== 200) throw new Error(`Kafka cannot be had: ${body}`);
  return body;
}
