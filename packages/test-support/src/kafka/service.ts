import { createHash } from "node:crypto";
import { realpath } from "node:fs/promises";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { mayInstall } from "../services/install_package.ts";
import type { Service } from "../services/service.ts";
import { fetchKafka, findKafka, type KafkaBinary, MAVEN_NEEDS } from "./binary.ts";
import { cached, installPackages } from "./cache.ts";
import { buildKafkaClient, findKafkaClient } from "./client.ts";
import { type KafkaServer, startKafkaServer } from "./server.ts";

const ARCHIVE = "kafka.jsa";

/** The prepared parts of a run. */
export interface KafkaHere {
  /** The node_modules with the native client. */
  readonly client: string;
  /** Missing where a server is named and tests can start none. */
  readonly binary?: KafkaBinary;
}

/**
 * Kafka: the brokers that KHALA_TEST_KAFKA names, or one of this machine, of a container, or, where CI=true or
 * KHALA_TEST_INSTALL=1, from Maven; and the native client, built where it is missing. Minutes of work are done in the
 * background, and no broker runs until a file asks for one: its environment is LOOKUP, where files ask.
 */
export function kafka(): Service {
  const given = process.env.KHALA_TEST_KAFKA;
  let binary: KafkaBinary | undefined;
  let client: string | undefined;
  return {
    name: "kafka",

    async available() {
      binary = await findKafka();
      client = await findKafkaClient();
      if (mayInstall() || ((binary || given) && client)) return undefined;
      if (!client)
        return "its native client is not built. Run `npm ci` in packages/kafka, or set KHALA_TEST_INSTALL=1";
      return "there is no Kafka. Install one, start Docker, name one in KHALA_TEST_KAFKA, or set KHALA_TEST_INSTALL=1";
    },

    async start() {
      const stopping = new AbortController();
      const { signal } = stopping;
      const prepared = prepare({ binary, client, needsBroker: !given, signal });
      // Reported to every caller.
      prepared.catch(() => {});
      let shared: Promise<KafkaServer> | undefined;
      const lookup = await serveLookup(async (path) => {
        const here = await prepared;
        if (path === "/here") return JSON.stringify(here);
        if (given) return given;
        shared ??= startKafkaServer(here.binary!);
        return (await shared).bootstrap;
      });
      return {
        env: { LOOKUP: `http://127.0.0.1:${(lookup.address() as AddressInfo).port}` },
        async stop() {
          lookup.closeAllConnections();
          lookup.close();
          stopping.abort();
          await Promise.allSettled([prepared]);
          await shared?.then(
            (server) => server[Symbol.asyncDispose](),
            () => {},
          );
        },
      };
    },
  };
}

interface Preparation {
  readonly binary: KafkaBinary | undefined;
  readonly client: string | undefined;
  readonly needsBroker: boolean;
  readonly signal: AbortSignal;
}

async function prepare({ binary, client, needsBroker, signal }: Preparation): Promise<KafkaHere> {
  const broker = async () => {
    if (binary) return withArchive(binary);
    if (!needsBroker) return undefined;
    await installPackages(MAVEN_NEEDS, signal);
    return withArchive(await fetchKafka(signal));
  };
  const [found, folder] = await Promise.all([broker(), client ?? buildKafkaClient(signal)]);
  return { client: folder, ...(found && { binary: found }) };
}

/** Starts and stops a broker once, so that Java writes its class archive. */
async function withArchive(binary: KafkaBinary): Promise<KafkaBinary> {
  if (binary.container) return binary;
  const key = createHash("sha256")
    .update(`${await realpath(binary.java)} ${binary.classpath}`)
    .digest("hex");
  const folder = await cached(`kafka-classes-${key.slice(0, 8)}`, async (making) => {
    const jvm = ["-XX:TieredStopAtLevel=1", `-XX:ArchiveClassesAtExit=${join(making, ARCHIVE)}`];
    await using server = await startKafkaServer(binary, { jvm });
    await server.stop();
  });
  return { ...binary, archive: join(folder, ARCHIVE) };
}

/** Answers each path with a text, or with an error. */
async function serveLookup(answer: (path: string) => Promise<string>): Promise<Server> {
  const server = createServer((request, response) => {
    answer(request.url ?? "").then(
      (text) => response.end(text),
      (error: Error) => response.writeHead(500).end(error.message),
    );
  });
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject).listen(0, "127.0.0.1", resolve);
  });
  return server;
}
