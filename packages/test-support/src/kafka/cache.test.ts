import { mkdir, mkdtemp, readdir, readFile, rm, utimes, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { cached, findCached, step } from "./cache.ts";

let cache: string;
beforeEach(async () => {
  cache = await mkdtemp(join(tmpdir(), "khala-cache-"));
  vi.stubEnv("KHALA_TEST_CACHE", cache);
});
afterEach(async () => {
  vi.unstubAllEnvs();
  await rm(cache, { recursive: true, force: true });
});

test("keeps one whole folder when two callers make it at once, and returns it to both", async () => {
  const both = Promise.withResolvers<void>();
  let making = 0;
  const make = (name: string) =>
    cached("thing", async (folder) => {
      await writeFile(join(folder, "maker"), name);
      if (++making === 2) both.resolve();
      await both.promise;
    });
  const [one, two] = await Promise.all([make("one"), make("two")]);
  expect(one).toBe(two);
  expect(["one", "two"]).toContain(await readFile(join(one, "maker"), "utf8"));
  expect(await readdir(cache)).toEqual(["thing"]);
});

test("does not keep a folder whose making failed, and makes it at the next call", async () => {
  const failing = cached("thing", () => Promise.reject(new Error("no compiler")));
  await expect(failing).rejects.toThrow("no compiler");
  expect(await findCached("thing")).toBeUndefined();
  await cached("thing", async () => {});
  expect(await findCached("thing")).toBe(join(cache, "thing"));
});

test("removes the half-made folders of killed runs after an hour", async () => {
  for (const name of ["old.making-1", "new.making-2"]) await mkdir(join(cache, name));
  await utimes(join(cache, "old.making-1"), 0, 0);
  await cached("thing", async () => {});
  expect((await readdir(cache)).sort()).toEqual(["new.making-2", "thing"]);
});

test("a failed step reports its output, and an aborted step ends with its child processes", async () => {
  const signal = AbortSignal.timeout(20_000);
  await expect(step("sh", ["-c", "echo broken; exit 3"], { cwd: cache, signal })).rejects.toThrow(
    /ended with 3:\nbroken/,
  );
  const calling = new AbortController();
  const ends = step("sh", ["-c", "sleep 60 & wait"], { cwd: cache, signal: calling.signal });
  calling.abort(new Error("called off"));
  await expect(ends).rejects.toThrow("called off");
});
