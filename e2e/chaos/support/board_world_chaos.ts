import { randomUUID } from "node:crypto";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Artifact } from "@khala/server";
import { tokenMint } from "@khala/test-support/kit/tokens";
import { until } from "@khala/test-support/kit/until";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { postgresWire } from "@khala/test-support/postgres/wire";
import { type StepProxy, startStepProxy } from "@khala/test-support/processes/step_proxy";
import { startTcpProxy, type Target, type TcpProxy } from "@khala/test-support/processes/tcp_proxy";
import { type GatewayProcess, startGateway } from "@khala/test-support/servers/gateways";
import { isFatal, KEY, type Note, noteOf } from "@khala/test-support/steps/board_world_rules";
import { expect } from "vitest";
import { systemClock } from "../../../packages/server/src/kit/clock.ts";
import { uuidv7 } from "../../../packages/server/src/kit/ids.ts";

/** How much is published, and over how many keys. */
export interface Amount {
  readonly keys: number;
  /** Of each key. */
  readonly each: number;
}

const SETTINGS = {
  KHALA_DATABASE_POOL: "8",
  KHALA_BOARD_POLL_MS: "200",
  KHALA_BOARD_LEASE_MS: "2000",
  KHALA_DRAIN_MS: "500",
  KHALA_LOG_LEVEL: "error",
};
/** For all of it to end, on a machine that has much else to do. */
const END_MS = 240_000;
/** How librdkafka's issue 5280 ends a process: a broker comes back, some partitions have no leader yet, and it reads unset memory. */
const CLIENT_FAULT = "SIGSEGV";
const SCOPES = ["blackboard:read", "blackboard:write"];

/** Servers in processes of their own, a publisher who does not give up, and what must come of it. */
export class BoardChaos implements AsyncDisposable {
  readonly store: TestDatabase;
  /** Between the servers and the database. */
  readonly proxy: TcpProxy;
  /** Those that are neither frozen nor on their way out. */
  readonly workers: GatewayProcess[] = [];
  /** Whether a broker comes back: then, and not before, the client's fault is expected. */
  brokerReturns = false;
  /** The artifacts that were sent more than once, as nobody answered at first. */
  readonly resent = new Set<string>();
  readonly #started: GatewayProcess[] = [];
  readonly #revivals: Promise<void>[] = [];
  readonly #folder: string;
  readonly #env: Readonly<Record<string, string>>;
  readonly #token: string;
  readonly #newId = uuidv7(systemClock);
  #turn = 0;
  #front: GatewayProcess | undefined;

  private constructor(
    store: TestDatabase,
    proxy: TcpProxy,
    folder: string,
    token: string,
    env: Record<string, string>,
  ) {
    this.store = store;
    this.proxy = proxy;
    this.#folder = folder;
    this.#token = token;
    this.#env = env;
  }

  static async open(env: Readonly<Record<string, string>> = {}): Promise<BoardChaos> {
    const store = await testDatabase();
    const proxy = await startTcpProxy(targetOf(store.url));
    const folder = await mkdtemp(join(tmpdir(), "khala-board-"));
    await writeFile(join(folder, "runs"), "");
    const mint = tokenMint();
    const token = await mint.mint("acme", "ada", { scopes: SCOPES });
    return new BoardChaos(store, proxy, folder, token, {
      ...SETTINGS,
      DATABASE_URL: proxy.through(store.url),
      KHALA_AUTH_SECRETS: mint.secrets,
      BOARD_RUNS: join(folder, "runs"),
      ...env,
    });
  }

  /** Starts another server. One that its client takes down when a broker comes back is replaced, as an operator would do. */
  async start(env: Readonly<Record<string, string>> = {}): Promise<GatewayProcess> {
    const worker = await this.#server(env);
    this.workers.push(worker);
    void worker.gone.then(() => this.#revivals.push(this.#revive(worker, env)));
    return worker;
  }

  #fell({ ending }: GatewayProcess): boolean {
    return this.brokerReturns && ending === CLIENT_FAULT;
  }

  async #revive(worker: GatewayProcess, env: Readonly<Record<string, string>>): Promise<void> {
    const place = this.workers.indexOf(worker);
    if (place < 0 || !this.#fell(worker)) return;
    console.warn(
      "A server was ended by its Kafka client (librdkafka's issue 5280). Another takes its place.",
    );
    this.workers.splice(place, 1);
    await this.start(env);
  }

  /** Starts a server that only takes what is published, and is asked instead of the others. */
  async front(env: Readonly<Record<string, string>> = { KHALA_BOARD_AGENTS: "off" }): Promise<void> {
    this.#front = await this.#server(env);
  }

  /** Starts a proxy between a server and the database that stops it at any statement. */
  async watch(): Promise<StepProxy> {
    return startStepProxy(postgresWire, targetOf(this.store.url));
  }

  async #server(env: Readonly<Record<string, string>> = {}): Promise<GatewayProcess> {
    const server = await startGateway({ ...this.#env, ...env }, "board_chaos.ts");
    this.#started.push(server);
    return server;
  }

  /** Takes a server out of the publisher's list. */
  take(index = 0): GatewayProcess {
    const [worker] = this.workers.splice(index, 1);
    return worker!;
  }

  /** Ends a server and starts another in its place. */
  async replace(signal: "SIGKILL" | "SIGTERM"): Promise<void> {
    const gone = this.take();
    const fell = this.#fell(gone);
    await gone.end(signal);
    // By the signal where its client still waits for a broker.
    if (signal === "SIGTERM" && !fell) expect([0, "SIGTERM"], gone.output()).toContain(gone.ending);
    await this.start();
  }

  async request<T>(path: string, body?: object): Promise<T> {
    const worker = this.#front ?? this.workers[this.#turn++ % this.workers.length];
    if (!worker) throw new Error("No server is there to be asked.");
    const response = await fetch(`${worker.url}/blackboard/v1${path}`, {
      headers: { authorization: `Bearer ${this.#token}`, "content-type": "application/json" },
      ...(body && { method: "POST", body: JSON.stringify(body) }),
      signal: AbortSignal.timeout(15_000),
    });
    if (!response.ok) throw new Error(`${path}: ${response.status} ${await response.text()}`);
    return (await response.json()) as T;
  }

  /** Asks until somebody answers. */
  insist<T>(path: string, body?: object, failed: () => void = () => {}): Promise<T> {
    let last: unknown;
    return until(
      `an answer to ${path}`,
      async () => {
        const answer = await this.request<T>(path, body).catch((error: unknown) => {
          last = error;
          failed();
          return undefined;
        });
        return answer && { answer };
      },
      { deadlineMs: 90_000 },
    ).then(
      ({ answer }) => answer,
      (error: Error) => {
        throw new Error(`${error.message} Last: ${last}`);
      },
    );
  }

  async #send(artifacts: readonly { readonly id: string }[]): Promise<void> {
    await this.insist("/artifacts", { artifacts }, () => {
      for (const { id } of artifacts) this.resent.add(id);
    });
  }

  /** Publishes topics, one of every key at a time, the next when the last are there and `pace` lets them go. */
  async publish({ keys, each }: Amount, pace: (published: number) => Promise<unknown>): Promise<void> {
    for (let n = 0; n < each; n++) {
      const artifacts: { id: string }[] = [];
      for (let k = 0; k < keys; k++) {
        const key = `${KEY}${k}`;
        const note = { type: "Topic", payload: { key, n }, partition_key: key, correlation_id: key };
        artifacts.push({ id: this.#newId(), ...note });
      }
      await this.#send(artifacts);
      await pace((n + 1) * keys);
    }
  }

  /** Publishes leaves, which nothing orders, with one call. */
  async leaves(first: number, count: number): Promise<void> {
    const artifacts = Array.from({ length: count }, (_, i) => ({
      id: this.#newId(),
      type: "Leaf",
      payload: { n: first + i },
    }));
    await this.#send(artifacts);
  }

  /** Publishes a bomb; resolves with its id. */
  async bomb(payload: object): Promise<string> {
    const id = randomUUID();
    const bomb = { id, type: "Bomb", payload };
    await this.#send([bomb]);
    return id;
  }

  /** The artifacts of a type, the oldest first. */
  async log(type: string): Promise<Artifact[]> {
    const { artifacts } = await this.insist<{ artifacts: Artifact[] }>(`/artifacts?type=${type}&limit=1000`);
    return artifacts.reverse();
  }

  /** The runs that agents wrote down: their idempotency keys, with repetitions. */
  async runs(agent: string): Promise<string[]> {
    const text = await readFile(join(this.#folder, "runs"), "utf8");
    return text.split("\n").flatMap((line) => {
      const [what, key = ""] = line.split(" ");
      return what === "run" && key.includes(`:${agent}@`) ? [key] : [];
    });
  }

  /** Waits until nothing is open, and checks that every task was settled once, as it should be. */
  async settled({ keys, each }: Amount): Promise<void> {
    const fatal = Array.from({ length: each }, (_, n) => n).filter((n) => isFatal({ key: "", n })).length;
    const reviews = each - fatal;
    const expected = {
      artifacts: String(2 * each + 2 * reviews),
      open: "0",
      done: String(each + 2 * reviews),
      dead: String(fatal),
    };
    for (let k = 0; k < keys; k++) {
      let last: unknown;
      await until(
        `${KEY}${k} has come to its end`,
        async () => {
          const state = await this.insist<Record<string, string>>(`/correlations/${KEY}${k}`);
          last = state;
          return Object.entries(expected).every(([name, value]) => state[name] === value);
        },
        { deadlineMs: END_MS },
      ).catch((error: Error) => {
        throw new Error(`${error.message} ${JSON.stringify(last)} instead of ${JSON.stringify(expected)}`);
      });
    }
  }

  /** Checks what there is at the end: each output once, in the order of its key where the agent is strict, each dead letter. */
  async check({ keys, each }: Amount, read: (type: string) => Promise<Artifact[]>): Promise<void> {
    const all: Note[] = [];
    for (let k = 0; k < keys; k++) for (let n = 0; n < each; n++) all.push({ key: `${KEY}${k}`, n });
    const fine = all.filter((note) => !isFatal(note));
    for (const [type, notes] of [
      ["Topic", all],
      ["Draft", all],
      ["Review", fine],
      ["Article", fine],
    ] as const) {
      const found = (await read(type)).map(noteOf);
      expect(found.map(named).sort(), `each ${type} once`).toEqual(notes.map(named).sort());
      if (type === "Article") continue;
      for (const [key, ofKey] of Map.groupBy(found, (note) => note.key))
        expect(
          ofKey.map(({ n }) => n),
          `${type} of ${key} in order`,
        ).toEqual(ofKey.map(({ n }) => n).toSorted((a, b) => a - b));
    }
    const query = "/dead-letters/reviewer?limit=1000";
    const { dead_letters } = await this.insist<{ dead_letters: { task: { artifacts: [Artifact] } }[] }>(
      query,
    );
    const dead = dead_letters.map(({ task }) => named(noteOf(task.artifacts[0])));
    expect(dead.sort()).toEqual(all.filter(isFatal).map(named).sort());
    for (const agent of ["writer", "publisher"]) {
      expect(await this.insist(`/dead-letters/${agent}?limit=10`)).toMatchObject({ dead_letters: [] });
      const keysRun = new Set(await this.runs(agent));
      expect(keysRun.size, `the tasks that ${agent} ran`).toBe(agent === "writer" ? all.length : fine.length);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.#revivals);
    await Promise.all(this.#started.map((worker) => worker[Symbol.asyncDispose]()));
    await this.proxy[Symbol.asyncDispose]();
    await this.store[Symbol.asyncDispose]();
    await rm(this.#folder, { recursive: true, force: true });
  }
}

function targetOf(url: string): Target {
  const { hostname, port } = new URL(url);
  return { host: hostname, port: Number(port || 5432) };
}

const named = ({ key, n }: Note) => `${key}/${n}`;
