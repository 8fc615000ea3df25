import { inspect } from "node:util";
import { KhalaError } from "@khala/contracts";
import { Witness } from "@khala/test-support/clients/witness";
import { seeded, testContext } from "@khala/test-support/kit/context";
import { eventually } from "@khala/test-support/kit/eventually";
import { type TokenMint, tokenMint } from "@khala/test-support/kit/tokens";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { startServer, type TestServer } from "@khala/test-support/servers/servers";
import {
  lightningControlPlane,
  type Model,
  notifications,
  runSummaries,
  workerSummaries,
} from "../../../packages/server/src/index.ts";
import type { Context } from "../../../packages/server/src/kit/context.ts";
import { rotateEpoch } from "../../../packages/server/src/sync/read/starts.ts";
import { reproject } from "../../../packages/server/src/sync/rebuild/reprojection.ts";
import { trimTopic } from "../../../packages/server/src/sync/rebuild/retention.ts";
import { type Command, SUBJECTS } from "./sync_commands.ts";
import { appendOf, ORGS } from "./sync_events.ts";
import { SyncOracle } from "./sync_oracle.ts";

const MODELS = [runSummaries, workerSummaries, notifications, lightningControlPlane];
const TOPICS = MODELS.map(({ topic }) => topic);
/** Where little fits: a batch of a few, a memory of a few more, and updates that have to be fetched. */
const SETTINGS = {
  KHALA_WAKEUPS: "on",
  KHALA_POLL_MS: "20",
  KHALA_HEARTBEAT_MS: "200",
  KHALA_DRAIN_MS: "500",
  KHALA_DATABASE_POOL: "4",
  KHALA_REPLAY_MAX_UPDATES: "3",
  KHALA_REPLAY_MAX_UPDATE_BYTES: "1024",
  KHALA_TAIL_BYTES: "4000",
};

interface Seat {
  readonly org: string;
  readonly subject: string;
  witness: Witness;
  claimsVersion: number;
}

/** Servers of this process on one database, and witnesses that come and go. */
export class SyncWorld implements AsyncDisposable {
  readonly #store: TestDatabase;
  readonly #context: Context;
  readonly #mint: TokenMint = tokenMint();
  readonly #servers: TestServer[] = [];
  readonly #seats: Seat[];

  private constructor(store: TestDatabase, context: Context) {
    this.#store = store;
    this.#context = context;
    this.#seats = ORGS.flatMap((org) =>
      SUBJECTS.map((subject) => {
        const seat = { org, subject, claimsVersion: 0 } as Seat;
        seat.witness = this.#seat(seat);
        return seat;
      }),
    );
  }

  static async open(servers: number, seed: number): Promise<SyncWorld> {
    const store = await testDatabase();
    const world = new SyncWorld(store, await testContext({ seed }));
    for (let i = 0; i < servers; i++) world.#servers.push(await world.#start("inline"));
    for (const { witness } of world.#seats) witness.start();
    return world;
  }

  #start(mode: "inline" | "pointer"): Promise<TestServer> {
    const settings = { ...SETTINGS, KHALA_AUTH_SECRETS: this.#mint.secrets, KHALA_PAYLOAD_MODE: mode };
    return startServer(this.#store.url, { settings, models: MODELS });
  }

  /** A witness for a seat, which goes on with what the one before it saved. */
  #seat(seat: Seat): Witness {
    const { org, subject } = seat;
    return new Witness({
      org,
      subject,
      topics: TOPICS,
      urls: () => this.#servers.map(({ url }) => url),
      token: () => this.#mint.mint(org, subject, { claims_version: seat.claimsVersion }),
      random: seeded(1 + Math.floor(this.#context.random() * 1e9)),
      encoding: subject === "bob" ? "proto" : "json",
      ...(seat.witness && { saved: seat.witness.save() }),
    });
  }

  /** Lets something happen. */
  async run(command: Command): Promise<void> {
    await inTime(JSON.stringify(command), this.#run(command));
  }

  async #run(command: Command): Promise<void> {
    switch (command.do) {
      case "append":
        return this.#append(command);
      case "connect": {
        const seat = this.#seatOf(command.witness);
        if (seat.witness.started) return;
        seat.witness = this.#seat(seat);
        seat.witness.start();
        return;
      }
      case "disconnect": {
        const { witness } = this.#seatOf(command.witness);
        await witness.stop();
        return this.#blameless(witness);
      }
      case "drop":
        return this.#seatOf(command.witness).witness.drop();
      case "claims": {
        const seat = this.#seatOf(command.witness);
        seat.claimsVersion++;
        return seat.witness.reauthenticate();
      }
      case "purge": {
        const model = MODELS[command.topic % MODELS.length]!;
        while ((await again(() => trimTopic(this.#store.database, model, 0))) > 0);
        return;
      }
      case "fix":
        return this.#fix(MODELS[command.topic % MODELS.length]!);
      case "restart": {
        const index = command.server % this.#servers.length;
        await this.#servers[index]![Symbol.asyncDispose]();
        this.#servers[index] = await this.#start(command.mode);
        return;
      }
      case "cut":
        return this.#cut(command.what === "all");
      case "epoch":
        await again(() => rotateEpoch(this.#store.database, this.#context));
        return;
      case "settle":
        return this.settle();
    }
  }

  #seatOf(number: number): Seat {
    return this.#seats[number % this.#seats.length]!;
  }

  async #append({ stream, event, audience, large }: Command & { do: "append" }): Promise<void> {
    const { authority } = this.#servers[event % this.#servers.length]!.khala;
    const append = appendOf(stream, event, audience, large);
    await again(() => authority.append(append));
  }

  /**
   * Damages a document as only an accident can, and has the topic rebuilt from its events. Not in who may see it: an event
   * that is projected before that would show it to them.
   */
  async #fix(model: Model): Promise<void> {
    const { database } = this.#store;
    const damaged = `convert_to((convert_from(payload, 'UTF8')::jsonb || '{"damaged":true}')::text, 'UTF8')`;
    const text = `UPDATE runtime.${model.table} SET payload = ${damaged}, payload_hash = sha256(${damaged})
      WHERE doc_key = (SELECT min(doc_key) FROM runtime.${model.table} WHERE NOT deleted)`;
    await again(() => database.query({ text }));
    await again(() => reproject(database, this.#context, model, { inline: true }));
  }

  /** Cuts connections to the database: those that listen for wakeups, or all, our own too. */
  async #cut(all: boolean): Promise<void> {
    const text = `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
      WHERE datname = current_database() AND pid <> pg_backend_pid() AND ($1 OR query LIKE 'LISTEN%')`;
    await again(() => this.#store.database.query({ text, values: [all] }));
  }

  /** Resolves when every connected witness holds what the events say, and what a fresh list says. */
  async settle(): Promise<void> {
    const { authority } = this.#servers[0]!.khala;
    const events = await again(() => authority.read(0n, 100_000));
    for (const model of MODELS) {
      const oracle = new SyncOracle(model, events);
      for (const seat of this.#seats.filter(({ witness }) => witness.started)) {
        const { witness } = seat;
        const view = witness.view(model.topic);
        const agreed = async () => {
          const list = await witness.list(model.topic).catch(() => undefined);
          return list && view.agreesWith(list) && sameHashes(oracle.seen(seat), view.documents);
        };
        await eventually(`${witness.name} holds what the events of ${model.topic} say`, agreed).catch(
          async (error) => {
            const list = await witness.list(model.topic).catch((trouble: Error) => trouble.message);
            const scene = {
              expected: oracle.seen(seat),
              list,
              witness: witness.describe(),
              feeds: this.#feeds(),
            };
            throw new Error(`${error.message}\n${inspect(scene, { depth: 6 })}`, { cause: error });
          },
        );
        this.#blameless(witness);
        for (const key of view.tombstones)
          if (!oracle.everSeen(seat, key)) throw new Error(`${witness.name} was told of ${key}`);
      }
    }
  }

  /** How the feeds of each server stand. */
  #feeds(): string[][] {
    return this.#servers.map(({ khala }) =>
      khala.sync.hub.open().map(({ model, epoch, head, bounds, liveCount }) => {
        return `${model.topic} ${epoch}/${head} of ${bounds.floor} to ${bounds.head}, ${liveCount} live`;
      }),
    );
  }

  #blameless({ name, violations }: Witness): void {
    if (violations.length > 0) throw new Error(`${name} saw broken promises:\n${violations.join("\n")}`);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.#seats.map(({ witness }) => witness.stop()));
    for (const server of this.#servers) await server[Symbol.asyncDispose]();
    await this.#store[Symbol.asyncDispose]();
  }
}

/** Does again what a cut connection interrupted. */
function again<T>(work: () => Promise<T>): Promise<T> {
  return work().catch((error) => {
    if (error instanceof KhalaError && error.code === "unavailable") return again(work);
    throw error;
  });
}

/** Fails when something takes so long that it hangs. */
async function inTime(what: string, work: Promise<void>): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`It hangs: ${what}`)), 60_000);
  });
  await Promise.race([work, late]).finally(() => clearTimeout(timer));
}

function sameHashes(
  expected: Map<string, string>,
  held: ReadonlyMap<string, { hash: string | null }>,
): boolean {
  return expected.size === held.size && [...expected].every(([key, hash]) => held.get(key)?.hash === hash);
}
