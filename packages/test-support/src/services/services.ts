import type { TestProject } from "vitest/node";
import { chromium, WHOLE } from "../browser/service.ts";
import { kafka } from "../kafka/service.ts";
import { postgres } from "../postgres/service.ts";
import { redis } from "../redis/service.ts";
import type { RunningService, Service } from "./service.ts";

declare module "vitest" {
  interface ProvidedContext {
    /** The environment of each running service, by its name. */
    services: Readonly<Record<string, Readonly<Record<string, string>>>>;
  }
}

/** Starts the services that this machine has. A missing one is skipped with a warning, or is a failure where `required`, as in CI. */
export async function startServices(services: readonly Service[], required = process.env.CI === "true") {
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
      if (required) throw new Error(`${service.name} is required here and not available: ${reason}`);
      console.warn(`SKIPPED: every test on ${service.name}, which is not available: ${reason}`);
    }
  } catch (error) {
    await stop();
    throw error;
  }
  return { running, stop };
}

/** Starts services for a project's test files, which find them by `inject("services")`. */
export async function provideServices(
  project: TestProject,
  services: readonly Service[],
): Promise<() => Promise<void>> {
  const { running, stop } = await startServices(services);
  project.provide("services", Object.fromEntries([...running].map(([name, { env }]) => [name, env])));
  return stop;
}

/** Vitest's global setup for tests that need more than PostgreSQL. */
export default function setup(project: TestProject): Promise<() => Promise<void>> {
  const browser = project.name === "chaos" ? chromium(WHOLE) : chromium();
  return provideServices(project, [postgres(), redis(), kafka(), browser]);
}
