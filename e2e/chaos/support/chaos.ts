import { ownedId, Witness, type WitnessOptions } from "@khala/test-support/clients/witness";
import { Writer } from "@khala/test-support/clients/writer";
import { seeded } from "@khala/test-support/kit/context";
import { eventually } from "@khala/test-support/kit/eventually";
import { TOPICS, tokenMint } from "@khala/test-support/kit/tokens";
import { type GatewayProcess, startGateway } from "@khala/test-support/servers/gateways";
import { expect } from "vitest";
import type { Database } from "../../../packages/server/src/database/database.ts";
import type { Random } from "../../../packages/server/src/kit/ids.ts";

/** Settings under which everything happens often: small batches, a short memory, quick polls. */
const SETTINGS = {
  KHALA_POLL_MS: "50",
  KHALA_HEARTBEAT_MS: "300",
  KHALA_REPLAY_MAX_UPDATES: "20",
  KHALA_TAIL_BYTES: "50000",
  KHALA_DATABASE_POOL: "6",
};

/** Gateways, writers and witnesses of several orgs and subjects on one database. */
export class Chaos implements AsyncDisposable {
  readonly #random: Random;
  readonly #database: Database;
  readonly #mint = tokenMint();
  readonly #env: Readonly<Record<string, string>>;
  /** Every gateway that was started; and those of them that clients know of. */
  readonly #started: GatewayProcess[] = [];
  readonly gateways: GatewayProcess[] = [];
  readonly witnesses: Witness[] = [];
  readonly writers: Writer[] = [];
  readonly #timeoutMs: number | undefined;
  readonly #marker: Writer;
  #marks = 0;

  /** Gateways are given the database's URL; `seed` is what chance is made of; writers wait `timeoutMs` for an answer. */
  constructor(store: { url: string; database: Database }, seed: number, timeoutMs?: number) {
    this.#timeoutMs = timeoutMs;
    this.#env = { ...SETTINGS, DATABASE_URL: store.url, KHALA_AUTH_SECRETS: this.#mint.secrets };
    this.#database = store.database;
    this.#random = seeded(seed);
    this.#marker = this.#newWriter("chaos", "mark", 1);
  }

  readonly urls = (): readonly string[] => this.gateways.map(({ url }) => url);

  /** A token of this world. */
  token(org: string, subject: string, scopes: readonly string[]): Promise<string> {
    return this.#mint.mint(org, subject, { scopes: [...scopes] });
  }

  /** Starts another gateway, of a program in programs/ or by its path. */
  async gateway(env: Readonly<Record<string, string>> = {}, program?: string): Promise<GatewayProcess> {
    const gateway = await startGateway({ ...this.#env, ...env }, program);
    this.#started.push(gateway);
    this.gateways.push(gateway);
    return gateway;
  }

  /** Takes a gateway away from the clients' list, as a load balancer does with one that is gone. */
  withdraw(gateway: GatewayProcess): void {
    this.gateways.splice(this.gateways.indexOf(gateway), 1);
  }

  /** A witness, not started yet. */
  witness(org: string, subject: string, options: Partial<WitnessOptions> = {}): Witness {
    const witness = new Witness({
      org,
      subject,
      topics: TOPICS,
      urls: this.urls,
      token: () => this.#mint.mint(org, subject),
      random: this.#random,
      encoding: this.witnesses.length % 2 === 0 ? "json" : "proto",
      ...options,
    });
    this.witnesses.push(witness);
    return witness;
  }

  /** A writer, not started yet. */
  writer(org: string, subject: string, runs = 5): Writer {
    const writer = this.#newWriter(org, subject, runs);
    this.writers.push(writer);
    return writer;
  }

  #newWriter(org: string, subject: string, runs: number): Writer {
    const token = () => this.#mint.mint(org, subject);
    const timeout = this.#timeoutMs !== undefined && { timeoutMs: this.#timeoutMs };
    return new Writer({ org, subject, urls: this.urls, token, random: this.#random, runs, ...timeout });
  }

  /** Two orgs, two subjects each, all watched and all writing. */
  async people(): Promise<void> {
    for (const org of ["acme", "zeta"]) {
      for (const subject of ["ann", "bob"]) {
        this.witness(org, subject).start();
        this.writer(org, subject);
      }
    }
    await this.agree();
  }

  startWriters(): void {
    for (const writer of this.writers) writer.start();
  }

  /** Stops the writers; everything that they wrote is acknowledged. */
  async stopWriters(): Promise<void> {
    await Promise.all(this.writers.map((writer) => writer.stop()));
  }

  /** Resolves when this many more steps are acknowledged. */
  async steps(count: number): Promise<void> {
    const total = () => this.writers.reduce((sum, writer) => sum + writer.total, 0);
    const goal = total() + count;
    await eventually(`${count} more steps are written`, () => {
      this.#allRunning();
      return total() >= goal;
    });
  }

  /**
   * With the writers stopped: resolves when everything is projected and every witness that is started stands where a
   * fresh list does and holds the same documents. Fails on anything that any of them saw and should not have, and on
   * acknowledged steps that are missing or counted twice, unless a loss was to be expected.
   */
  async agree({ lossless = true } = {}): Promise<void> {
    await this.#within(this.#projected());
    for (const witness of this.witnesses.filter(({ started }) => started)) {
      for (const view of witness.views) {
        const agreed = () =>
          witness.list(view.topic).then(
            (list) => view.agreesWith(list),
            () => false,
          );
        await this.#within(eventually(`${witness.name} agrees on ${view.topic}`, agreed));
      }
    }
    this.blameless();
    if (!lossless) return;
    const counted = await countedSteps(this.#database);
    for (const { steps } of this.writers)
      for (const [key, count] of steps) expect.soft(counted.get(key), key).toBe(count);
  }

  /** Resolves when everything written so far is projected: a mark that was written last has reached every topic. */
  async #projected(): Promise<void> {
    const id = ownedId("chaos", "mark", `m${++this.#marks}`);
    const completed = { type: "run.completed" };
    await this.#marker.append("/runtime/v1/runs", id, [completed]);
    await this.#marker.append("/runtime/v1/workers", id, [{ type: "worker.heartbeat" }]);
    const created = { type: "invoice.created", data: { amount_msat: "1" } };
    await this.#marker.append("/lightning/v1/invoices", id, [created]);
    await eventually("the projections have taken every event", async () => {
      const rows = await this.#database.query({
        text: `SELECT FROM runtime.sync_run_summaries r, runtime.sync_codex_worker_summaries w,
            runtime.sync_lightning_control_plane i, runtime.sync_notifications n
          WHERE r.doc_key = 'run:' || $1 AND w.doc_key = 'worker:' || $1 AND i.doc_key = 'invoice:' || $1
            AND n.doc_key = 'notification:run:' || $1 || ':1'`,
        values: [id],
      });
      return rows.length > 0;
    });
  }

  /** Fails if a witness saw what it should not, or a gateway ended by itself. */
  blameless(): void {
    for (const witness of this.witnesses) expect.soft(witness.violations, witness.name).toEqual([]);
    this.#allRunning();
  }

  #allRunning(): void {
    for (const { running, wanted, output } of this.#started)
      expect(running || !wanted, `a gateway ended by itself:\n${output()}`).toBe(true);
  }

  /** Adds to a failure how everybody is. */
  async #within<T>(work: Promise<T>): Promise<T> {
    return work.catch((error: Error) => {
      throw new Error(`${error.message}\n${this.#scene()}`, { cause: error });
    });
  }

  #scene(): string {
    const lines = this.witnesses.map((witness) => witness.describe());
    return [...lines, ...this.#started.map(({ output }) => output())].join("\n");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const writer of this.writers) writer.abandon();
    await Promise.all(this.witnesses.map((witness) => witness.stop()));
    await Promise.all(this.#started.map((gateway) => gateway[Symbol.asyncDispose]()));
  }
}

/** The steps that each run's document counts. */
async function countedSteps(database: Database): Promise<Map<string, number>> {
  const rows = await database.query<{ key: string; steps: number }>({
    text: `SELECT doc_key AS key, (convert_from(payload, 'UTF8')::json ->> 'steps')::int AS steps
      FROM runtime.sync_run_summaries WHERE NOT deleted`,
  });
  return new Map(rows.map(({ key, steps }) => [key, steps]));
}
