import { randomUUID } from "node:crypto";
import { expect } from "vitest";
import { systemClock } from "../../../server/src/kit/clock.ts";
import { uuidv7 } from "../../../server/src/kit/ids.ts";
import { startKafka } from "../kafka/kafka.ts";
import { kafkaWire } from "../kafka/wire.ts";
import { testContext } from "../kit/context.ts";
import { until } from "../kit/until.ts";
import { type StepProxy, startStepProxy } from "../processes/step_proxy.ts";
import { type GatewayProcess, startGateway } from "../servers/gateways.ts";
import { expectOnce, readBoard } from "./board_records.ts";
import { MAKER, openStepBoard, type Role } from "./board_steps.ts";
import { noteOf } from "./board_world_rules.ts";

const KEYS = 6;
const EACH = 2;
/** Groups take seconds to notice a death, and brokers to end an abandoned transaction. */
const LONG = { deadlineMs: 120_000 };
const newId = uuidv7(systemClock);

/** A broker behind a proxy that can stop any of its clients at any step. */
export interface WatchedBroker extends AsyncDisposable {
  /** Its address, through the proxy. */
  readonly bootstrap: string;
  readonly proxy: StepProxy;
}

/** Starts a broker whose clients connect through the proxy only. */
export async function startWatchedBroker(wire = kafkaWire): Promise<WatchedBroker> {
  const proxy = await startStepProxy(wire);
  const properties = { "group.min.session.timeout.ms": 1_000 };
  const broker = await startKafka({ advertised: proxy.port, properties });
  const { hostname: host, port } = new URL(`tcp://${broker.bootstrap}`);
  proxy.target = { host, port: Number(port) };
  return {
    bootstrap: `127.0.0.1:${proxy.port}`,
    proxy,
    async [Symbol.asyncDispose]() {
      await broker[Symbol.asyncDispose]();
      await proxy[Symbol.asyncDispose]();
    },
  };
}

/** A new board, on which processes with one role are stopped while this process publishes and has the other role. */
export class StepStage implements AsyncDisposable {
  readonly prefix = `t${randomUUID().slice(0, 8)}.`;
  readonly #role: Role;
  readonly #broker: WatchedBroker;
  readonly #processes: GatewayProcess[] = [];
  #front: Awaited<ReturnType<typeof openStepBoard>> | undefined;
  #published = 0;

  private constructor(broker: WatchedBroker, role: Role) {
    this.#broker = broker;
    this.#role = role;
  }

  static async open(broker: WatchedBroker, role: Role): Promise<StepStage> {
    const stage = new StepStage(broker, role);
    const name = stage.named("front");
    const place = { ...broker, prefix: stage.prefix, clientId: name, transactionalId: name };
    const other = role === "router" ? "agent" : "router";
    stage.#front = await openStepBoard(await testContext(), place, other);
    return stage;
  }

  /** The client id of a process. */
  named(name: string): string {
    return `${this.prefix}${name}`;
  }

  /** Starts a process with the role. Processes with the same `transactions` end the open transaction of the one before. */
  async start(name: string, transactions: string): Promise<GatewayProcess> {
    const process = await startGateway(
      {
        BOARD_KAFKA: this.#broker.bootstrap,
        BOARD_PREFIX: this.prefix,
        BOARD_CLIENT: this.named(name),
        BOARD_TRANSACTIONS: this.named(transactions),
        BOARD_ROLE: this.#role,
      },
      "board_role.ts",
    );
    this.#processes.push(process);
    return process;
  }

  /** Publishes some drafts of each key. */
  async publish(): Promise<void> {
    const drafts = Array.from({ length: KEYS * EACH }, (_, i) => {
      const key = `key-${i % KEYS}`;
      return {
        id: newId(),
        type: "Draft",
        payload: { key, n: this.#published + i },
        partition_key: key,
        produced_by: "user:ann",
        visibility: { kind: "org" as const },
        version: 1,
        created_at: new Date().toISOString(),
        org_id: "acme",
        depth: 0,
        tags: [],
      };
    });
    this.#published += drafts.length;
    await this.#front!.publish(drafts);
  }

  /** Waits until every draft has an output. */
  async settled(after: string): Promise<void> {
    const query = { org: "acme", type: "Made", limit: 1_000 };
    const all = async () => (await this.#front!.recent(query)).length >= this.#published;
    await until(`all is settled after ${after}`, all, LONG).catch((error: Error) => {
      const said = this.#processes.map((process) => process.output()).join("\n");
      throw new Error(`${error.message}\n${said}`);
    });
  }

  /** Checks that every record in the topics is there once, and in the order of its key. */
  async expectExact(): Promise<void> {
    const records = await readBoard(this.#broker.bootstrap, this.prefix, [MAKER.agent]);
    expectOnce(records);
    const numbers = Array.from({ length: this.#published }, (_, n) => n);
    const [drafts, made] = ["Draft", "Made"].map((kind) =>
      records.artifacts.filter(({ type }) => type === kind),
    );
    const sources = made!.map(({ payload }) => (payload as { readonly of?: string }).of);
    expect(sources.sort(), "what something was made of").toEqual(drafts!.map(({ id }) => id).sort());
    for (const [what, artifacts] of [
      ["drafts", drafts!],
      ["tasks", records.tasks.map((task) => task.artifacts[0])],
      ["outputs", made!],
    ] as const) {
      const notes = artifacts.map(noteOf);
      expect(
        notes.map(({ n }) => n).sort((a, b) => a - b),
        what,
      ).toEqual(numbers);
      for (const [key, ofKey] of Map.groupBy(notes, (note) => note.key)) {
        const order = ofKey.map(({ n }) => n);
        expect(order, `${what} of ${key} in order`).toEqual(order.toSorted((a, b) => a - b));
      }
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.#processes.map((process) => process[Symbol.asyncDispose]()));
    await this.#front?.stop();
  }
}
