import { SCOPES } from "@khala/contracts";
import {
  type AppDefinition,
  type Artifact,
  type ArtifactDraft,
  createKhala,
  type Khala,
  readConfig,
} from "@khala/server";
import { expect } from "vitest";
import type { Caller } from "../../../server/src/blackboard/plane.ts";
import type { Database } from "../../../server/src/database/database.ts";
import type { Clock } from "../../../server/src/kit/clock.ts";
import { eventually } from "../kit/eventually.ts";
import { testViewer } from "../kit/viewer.ts";
import { testDatabase } from "../postgres/test_database.ts";
import { type Backend, backendSettings } from "./backends.ts";

/** The default publisher, and a caller of another org. */
export const ADA: Caller = personOf("acme", "ada");
export const EVE: Caller = personOf("evil", "eve");

/** A caller of an org who reads, publishes and works for every agent. */
export function personOf(org: string, subject: string): Caller {
  const { blackboardRead, blackboardWrite, blackboardWork } = SCOPES;
  return testViewer({ org, subject, scopes: [blackboardRead, blackboardWrite, blackboardWork] });
}

/** The options of a test's server. */
export interface ServerParts extends Pick<AppDefinition, "agents" | "schemas" | "schedules"> {
  readonly settings?: Readonly<Record<string, string>>;
  readonly clock?: Clock;
}

/** Whole servers with one database. Disposing of them stops those that run. */
export interface BoardServers extends AsyncDisposable {
  readonly database: Database;
  start(parts: ServerParts): Promise<Khala>;
  /** Stops one in order, as a deployment does. */
  stop(khala: Khala): Promise<void>;
}

/** Makes a database for servers to start on, and topics of their own if the board is on Kafka. */
export async function boardServers(backend: Backend = "Postgres"): Promise<BoardServers> {
  const store = await testDatabase();
  const flow = await backendSettings(backend);
  const running = new Set<Khala>();
  const stop = async (khala: Khala) => {
    if (running.delete(khala)) await khala.stop();
  };
  return {
    database: store.database,
    async start({ settings, clock, ...app }) {
      const config = readConfig({
        DATABASE_URL: store.url,
        KHALA_PORT: "0",
        KHALA_LOG_LEVEL: "silent",
        KHALA_AUTH_SECRETS: `test:${Buffer.alloc(32, 7).toString("base64")}`,
        KHALA_DATABASE_POOL: "6",
        KHALA_DRAIN_MS: "1000",
        KHALA_BOARD_POLL_MS: "100",
        ...flow,
        ...settings,
      });
      const khala = await createKhala({ models: [], ...app }, { config, dev: true, ...(clock && { clock }) });
      running.add(khala);
      return khala;
    },
    stop,
    async [Symbol.asyncDispose]() {
      await Promise.all([...running].map(stop));
      await store[Symbol.asyncDispose]();
    },
  };
}

/** Publishes artifacts, which must be new; resolves with their ids. */
export async function publish({ blackboard }: Khala, ...drafts: readonly ArtifactDraft[]): Promise<string[]> {
  const published = await blackboard.publish(ADA, drafts);
  expect(published.map(({ status }) => status)).toEqual(drafts.map(() => "published"));
  return published.map(({ id }) => id!);
}

/** The artifacts of a type, the oldest first. */
export async function listed({ blackboard }: Khala, type: string, caller = ADA): Promise<Artifact[]> {
  return (await blackboard.recent(caller, { type, limit: 1_000 })).reverse();
}

/** Waits until there are this many artifacts of a type. */
export function arrived(khala: Khala, type: string, count = 1): Promise<Artifact[]> {
  return eventually(`${count} ${type}`, async () => {
    const found = await listed(khala, type);
    return found.length >= count && found;
  });
}

/** Waits until a correlation has this state, and returns its figures. */
export function stands({ blackboard }: Khala, correlationId: string, status: string) {
  return eventually(`${correlationId} is ${status}`, async () => {
    const state = await blackboard.correlation(ADA, correlationId);
    if (state?.status !== status) return false;
    const { artifacts, open, done, dead } = state;
    return { artifacts, open, done, dead };
  });
}

/** Waits until an agent has this many dead letters. */
export function buried({ blackboard }: Khala, agent: string, count: number) {
  return eventually(`${count} dead letters of ${agent}`, async () => {
    const { deadLetters } = await blackboard.deadLetters(ADA, agent, { limit: 1_000 });
    return deadLetters.length >= count && deadLetters;
  });
}

/** Waits until an agent is idle. */
export function idle({ blackboard }: Khala, agent: string) {
  return eventually(`${agent} has nothing to do`, async () => {
    const state = (await blackboard.agents()).find(({ name }) => name === agent);
    return state?.waiting === "0" && state.running === "0";
  });
}

/** Work that waits until the test releases it. */
export class Held {
  readonly started: string[] = [];
  readonly aborted: string[] = [];
  readonly #released = Promise.withResolvers<void>();

  /** Waits for the release, or fails when its signal aborts. */
  async wait(name: string, signal: AbortSignal): Promise<void> {
    this.started.push(name);
    await new Promise<void>((resolve, reject) => {
      void this.#released.promise.then(resolve);
      signal.addEventListener("abort", () => {
        this.aborted.push(name);
        reject(new Error("stopped"));
      });
    });
  }

  release(): void {
    this.#released.resolve();
  }
}
