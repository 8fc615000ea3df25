import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { ensureBuilt } from "../browser/dashboard_build.ts";
import { withFileLock } from "./file_lock.ts";

let folder: string;
let lock: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "khala-lock-"));
  lock = join(folder, "lock");
});
afterEach(() => rm(folder, { recursive: true }));

const many = <T>(work: () => Promise<T>) => Promise.all(Array.from({ length: 20 }, work));

/** The id of a process that is not there any more. */
async function deadProcess(): Promise<number> {
  const child = spawn(process.execPath, ["--version"], { stdio: "ignore" });
  await once(child, "exit");
  return child.pid!;
}

test("lets one of many waiters hold the lock at a time, and leaves no file behind", async () => {
  let inside = 0;
  let most = 0;
  await many(() =>
    withFileLock(lock, { waitMs: 30_000 }, async () => {
      most = Math.max(most, ++inside);
      await readdir(folder);
      inside--;
    }),
  );
  expect(most).toBe(1);
  expect(await readdir(folder)).toEqual([]);
});

test("takes over the lock of a dead process, for one waiter at a time", async () => {
  await writeFile(lock, `${await deadProcess()}:its-own`);
  let inside = 0;
  let most = 0;
  await many(() =>
    withFileLock(lock, { waitMs: 30_000 }, async () => {
      most = Math.max(most, ++inside);
      await readdir(folder);
      inside--;
    }),
  );
  expect(most).toBe(1);
  expect(await readdir(folder)).toEqual([]);
});

test("releases the lock when its holder fails, and names the holder to who waits too long", async () => {
  const failing = withFileLock(lock, { waitMs: 0 }, () => Promise.reject(new Error("no page")));
  await expect(failing).rejects.toThrow("no page");
  await withFileLock(lock, { waitMs: 0 }, async () => {
    const second = withFileLock(lock, { waitMs: 0 }, async () => "in");
    await expect(second).rejects.toThrow(`held by process ${process.pid}`);
  });
  expect(await readdir(folder)).toEqual([]);
});

test("builds a page once for many concurrent callers", async () => {
  const page = join(folder, "index.html");
  let builds = 0;
  await many(() =>
    ensureBuilt({ page, lock, waitMs: 30_000 }, async () => {
      builds++;
      await writeFile(page, "<!doctype html>");
    }),
  );
  expect(builds).toBe(1);
  await rm(page);
  await expect(ensureBuilt({ page, lock, waitMs: 30_000 }, async () => {})).rejects.toThrow("was not built");
  expect(existsSync(lock)).toBe(false);
});
