import type { TestProject } from "vitest/node";
import { chromium } from "./chromium_service.ts";
import { kafka } from "./kafka_service.ts";
import { postgres } from "./postgres_service.ts";
import { redis } from "./redis_service.ts";
import type { RunningService, Service } from "./service.ts";
import { StolenTime } from "./stolen_time.ts";
import { openTurns, room } from "./turns.ts";

/** How often, and over how long, it is looked at what the host gives. */
const LOOK_MS = 1_000;
const WINDOW_MS = 15_000;

declare module "vitest" {
  interface ProvidedContext {
    /** The environment of each service that runs, by its name. */
    services: Readonly<Record<string, Readonly<Record<string, string>>>>;
    /** The port where files wait for their turn. */
    turns: number;
  }
}

/** Starts what can be had. An engine that cannot is left out loudly, and is a failure where `required`. */
export async function startServices(services: readonly Service[], required: boolean) {
  const running = new Map<string, RunningService>();
  const stop = async () => {
    for (const service of [...running.values()].reverse()) await service.stop();
    running.clear();
  };
  try {
    for (const service of services) {
      const reason = await service.available();
      if (reason === undefined) {
        running.set(service.name, await service.start());
        continue;
      }
      if (required) throw new Error(`${service.name} is needed here and cannot be had: ${reason}`);
      console.warn(`SKIPPED: every test on ${service.name}, because it cannot be had: ${reason}`);
    }
  } catch (error) {
    await stop();
    throw error;
  }
  return { running, stop };
}

/** Lets as many files run at a time as the machine has room for while its host gives it to others. */
async function startTurns(project: TestProject): Promise<() => Promise<void>> {
  const stolen = new StolenTime();
  const { maxWorkers } = project.config;
  const turns = await openTurns(() => room(maxWorkers, stolen.share(Date.now() - WINDOW_MS, Date.now())));
  const looking = setInterval(() => {
    stolen.sample(Date.now());
    turns.look();
  }, LOOK_MS);
  project.provide("turns", turns.port);
  return async () => {
    clearInterval(looking);
    await turns[Symbol.asyncDispose]();
  };
}

/** Vitest's global setup: services for all files of a run, found by `inject("services")`. */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const { running, stop } = await startServices(
    [postgres(), redis(), kafka(), chromium()],
    process.env.CI === "true",
  );
  const stopTurns = await startTurns(project);
  project.provide("services", Object.fromEntries([...running].map(([name, { env }]) => [name, env])));
  return async () => {
    await stopTurns();
    await stop();
  };
}
