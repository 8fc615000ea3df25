import { afterEach, expect, test, vi } from "vitest";
import type { Service } from "./service.ts";
import { startServices } from "./services.ts";

const stopped: string[] = [];
afterEach(() => {
  stopped.length = 0;
  vi.restoreAllMocks();
});

function service(name: string, parts: Partial<Service> = {}): Service {
  const stop = async () => void stopped.push(name);
  return {
    name,
    available: async () => undefined,
    start: async () => ({ env: { NAME: name }, stop }),
    ...parts,
  };
}
const missing = service("kafka", { available: async () => "no broker was found" });

test("starts the available services, and stops them in reverse order", async () => {
  const { running, stop } = await startServices([service("a"), service("b")], true);
  expect([...running].map(([name, { env }]) => [name, env.NAME])).toEqual([
    ["a", "a"],
    ["b", "b"],
  ]);
  await stop();
  expect(stopped).toEqual(["b", "a"]);
});

test("skips a missing service with a warning", async () => {
  const warn = vi.spyOn(console, "warn").mockReturnValue();
  const { running } = await startServices([missing, service("a")], false);
  expect([...running.keys()]).toEqual(["a"]);
  expect(warn.mock.calls.flat().join()).toContain(
    "SKIPPED: every test on kafka, which is not available: no broker was found",
  );
});

test("fails when a required service is missing, and stops those that run", async () => {
  await expect(startServices([service("a"), missing], true)).rejects.toThrow("kafka is required here");
  expect(stopped).toEqual(["a"]);
});

test("stops the other services when one fails to start", async () => {
  const broken = service("b", { start: () => Promise.reject(new Error("the port is taken")) });
  await expect(startServices([service("a"), broken], false)).rejects.toThrow("the port is taken");
  expect(stopped).toEqual(["a"]);
});
