import { type ChildProcess, execFile, spawn } from "node:child_process";
import { randomBytes, randomUUID } from "node:crypto";
import { once } from "node:events";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { until } from "../kit/until.ts";
import { freePorts } from "../processes/ports.ts";
import { type Watchdog, watchdog } from "../processes/watchdog.ts";
import type { KafkaBinary } from "./binary.ts";
import { formatArguments, type KafkaNode, type KafkaOptions, LOG4J, properties } from "./settings.ts";

const run = promisify(execFile);
const READY = "Kafka Server started";
const START_MS = 180_000;
// Tests end before the second compiler pays off.
const QUICK = ["-XX:TieredStopAtLevel=1"];

/** A broker of a test's own, which is also a controller. */
export interface KafkaServer extends AsyncDisposable {
  /** Its address for clients, `host:port`. */
  readonly bootstrap: string;
  /** Kills it, as a power cut would. */
  kill(): Promise<void>;
  /** Stops it in order. */
  stop(): Promise<void>;
  /** Starts it again on its files. */
  restart(): Promise<void>;
  /** Suspends it (SIGSTOP): connections stay open, and nothing answers. */
  pause(): Promise<void>;
  resume(): Promise<void>;
  /** The end of its output. */
  output(): string;
}

/** Brokers that replicate each other's records. */
export interface KafkaCluster extends AsyncDisposable {
  /** The addresses of all of them. */
  readonly bootstrap: string;
  readonly brokers: readonly KafkaServer[];
}

/** Starts brokers on loopback, in a folder of their own that is removed when they are disposed of. */
export async function startKafkaServers(
  binary: KafkaBinary,
  count: number,
  options: KafkaOptions = {},
): Promise<KafkaCluster> {
  const home = await mkdtemp(join(tmpdir(), "khala-kafka-"));
  const ports = await freePorts(3 * count);
  const nodes = Array.from({ length: count }, (_, i): KafkaNode => {
    const [client, internal, controller] = ports.slice(3 * i) as [number, number, number];
    const id = i + 1;
    return { id, dir: join(home, String(id)), client, internal, controller, directoryId: kafkaUuid() };
  });
  const clusterId = kafkaUuid();
  const brokers: Broker[] = nodes.map((node) => new Broker(binary, node, home, options.jvm ?? QUICK));
  const dispose = async () => {
    for (const broker of brokers) await broker.kill();
    await rm(home, { recursive: true, force: true, maxRetries: 3 });
  };
  try {
    await writeFile(join(home, "log4j2.properties"), LOG4J);
    const started = await Promise.allSettled(
      nodes.map(async (node, i) => {
        await mkdir(node.dir);
        await writeFile(join(node.dir, "server.properties"), properties(node, nodes, options));
        await brokers[i]!.format(formatArguments(clusterId, nodes, options));
        await brokers[i]!.restart();
      }),
    );
    const failed = started.find((result) => result.status === "rejected");
    if (failed) throw failed.reason;
  } catch (error) {
    await dispose();
    throw error;
  }
  return {
    bootstrap: brokers.map(({ bootstrap }) => bootstrap).join(","),
    brokers,
    [Symbol.asyncDispose]: dispose,
  };
}

/** Starts one broker. */
export async function startKafkaServer(binary: KafkaBinary, options?: KafkaOptions): Promise<KafkaServer> {
  const cluster = await startKafkaServers(binary, 1, options);
  const broker = cluster.brokers[0]!;
  broker[Symbol.asyncDispose] = cluster[Symbol.asyncDispose];
  return broker;
}

/** 16 bytes as Kafka writes them; its tools take a leading dash for an option. */
function kafkaUuid(): string {
  const id = randomBytes(16).toString("base64url");
  return id.startsWith("-") ? kafkaUuid() : id;
}

class Broker implements KafkaServer {
  readonly bootstrap: string;
  readonly #binary: KafkaBinary;
  readonly #node: KafkaNode;
  readonly #home: string;
  readonly #jvm: readonly string[];
  #running: Running | undefined;

  constructor(binary: KafkaBinary, node: KafkaNode, home: string, jvm: readonly string[]) {
    this.bootstrap = `127.0.0.1:${node.client}`;
    this.#binary = binary;
    this.#node = node;
    this.#home = home;
    this.#jvm = jvm;
  }

  async format(args: readonly string[]): Promise<void> {
    const config = ["-c", join(this.#node.dir, "server.properties")];
    const main = ["kafka.tools.StorageTool", "format", ...config, ...args];
    const { file, args: all } = command(this.#binary, this.#home, this.#java(QUICK, main));
    await run(file, all, { timeout: START_MS });
  }

  async restart(): Promise<void> {
    if (this.#running?.alive) throw new Error("This broker runs already.");
    const heap = ["-Xms128m", "-Xmx512m"];
    const main = ["kafka.Kafka", join(this.#node.dir, "server.properties")];
    this.#running = new Running(this.#binary, this.#home, this.#java([...heap, ...this.#jvm], main));
    await this.#running.ready();
  }

  kill = async () => this.#running?.end("SIGKILL");
  stop = async () => this.#running?.end("SIGTERM");
  pause = async () => this.#running?.signal("SIGSTOP");
  resume = async () => this.#running?.signal("SIGCONT");
  output = () => this.#running?.output ?? "";

  async [Symbol.asyncDispose](): Promise<void> {
    await this.kill();
  }

  #java(flags: readonly string[], main: readonly string[]): string[] {
    const { archive, classpath } = this.#binary;
    const ready = archive ? [`-XX:SharedArchiveFile=${archive}`] : [];
    const log = `-Dlog4j2.configurationFile=${join(this.#home, "log4j2.properties")}`;
    return ["-XX:+UseSerialGC", ...ready, ...flags, log, "-cp", classpath, ...main];
  }
}

/** One life of a broker's process. */
class Running {
  readonly #child: ChildProcess;
  readonly #watchdog: Watchdog;
  readonly #exited: Promise<unknown>;
  readonly #container: { readonly engine: string; readonly name: string } | undefined;
  output = "";

  constructor(binary: KafkaBinary, home: string, args: readonly string[]) {
    const { file, args: all, name } = command(binary, home, args);
    this.#container = binary.container ? { engine: binary.container, name } : undefined;
    // Its own process group: a Ctrl-C at the terminal reaches us, and we stop it in order.
    this.#child = spawn(file, all, { stdio: ["ignore", "pipe", "pipe"], detached: true });
    for (const stream of [this.#child.stdout!, this.#child.stderr!])
      stream.setEncoding("utf8").on("data", (chunk: string) => {
        this.output = `${this.output}${chunk}`.slice(-8_000);
      });
    this.#exited = once(this.#child, "exit");
    // The broker and its folder are removed when this process ends.
    const end = binary.container ? `${binary.container} kill ${name}` : `kill -9 ${this.#child.pid}`;
    this.#watchdog = watchdog(`${end}; rm -rf "$1"`, home);
  }

  get alive(): boolean {
    return this.#child.exitCode === null && this.#child.signalCode === null;
  }

  async ready(): Promise<void> {
    const started = () => {
      if (!this.alive) throw new Error(`Kafka did not start:\n${this.output}`);
      return this.output.includes(READY);
    };
    await until("Kafka is up", started, { deadlineMs: START_MS }).catch(async (error: Error) => {
      const { output } = this;
      await this.end("SIGKILL");
      throw new Error(`${error.message}\n${output}`);
    });
  }

  async end(signal: "SIGKILL" | "SIGTERM"): Promise<void> {
    if (this.alive) {
      await this.signal(signal);
      // A suspended one handles no other signal.
      if (signal === "SIGTERM" && !this.#container) this.#child.kill("SIGCONT");
      await this.#exited;
    }
    this.#watchdog.callOff();
  }

  async signal(signal: NodeJS.Signals): Promise<void> {
    if (!this.#container) {
      this.#child.kill(signal);
      return;
    }
    const { engine, name } = this.#container;
    const verb = { SIGSTOP: ["pause"], SIGCONT: ["unpause"] }[signal as string];
    await run(engine, [...(verb ?? ["kill", "--signal", signal]), name]);
  }
}

function command({ java, container, image }: KafkaBinary, home: string, args: readonly string[]) {
  const name = `khala-test-${randomUUID()}`;
  if (!container) return { file: java, args: [...args], name };
  const place = ["--network", "host", "-v", `${home}:${home}`, "--user", "0", "--entrypoint", java];
  return { file: container, args: ["run", "--rm", "--name", name, ...place, image!, ...args], name };
}
