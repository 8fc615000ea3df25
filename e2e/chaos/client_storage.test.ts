import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { DatabaseSync } from "node:sqlite";
import { asyncStorage, type Storage, sqlite } from "@khala/client/storage";
import { bundleForBrowser } from "@khala/test-support/browser/bundle";
import { chromiumHere } from "@khala/test-support/browser/chromium";
import { startChromiumProcess } from "@khala/test-support/browser/chromium_process";
import { eventually } from "@khala/test-support/kit/eventually";
import { programFile } from "@khala/test-support/processes/programs";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { FileAsyncStorage } from "../../packages/client/src/storage/test_support.ts";

const ROUNDS = 6;
let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "khala-killed-"));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

describe("a program killed during a commit leaves a whole commit", () => {
  for (const driver of ["sqlite", "asyncStorage"])
    it(driver, async () => {
      const place = join(folder, driver);
      for (let round = 0; round < ROUNDS; round++) {
        const said = await commitUntilKilled(driver, place, 10 + round * 7);
        const { cursor, documents } = (await open(driver, place).load("scope", "topic"))!;
        const found = Number(cursor.watermark);
        expect(documents.map(({ payload }) => (payload as { n: number }).n)).toEqual([
          found,
          found,
          found,
          found,
        ]);
        expect(found).toBeGreaterThanOrEqual(said);
      }
    });
});

describe.skipIf(!chromiumHere())("a browser killed during a page's commit leaves a whole commit", () => {
  for (const driver of ["indexedDb", "localStorage"])
    it(driver, async () => {
      const script = await bundleForBrowser(programFile("storage_page"));
      const profile = join(folder, driver);
      let before = 0;
      for (let round = 0; round < 3; round++) {
        await using browser = await startChromiumProcess(profile);
        const { context } = browser;
        await context.serve("http://localhost/", script);
        const page = await context.open("http://localhost/");
        const found = (await page.evaluate(`khalaStorage.stored("${driver}")`)) as
          | { watermark: number; documents: number[] }
          | undefined;
        if (round > 0) {
          expect(found?.watermark).toBeGreaterThanOrEqual(before);
          expect(new Set(found?.documents)).toEqual(new Set([found?.watermark]));
          expect(found?.documents).toHaveLength(5);
        }
        await page.evaluate(`void khalaStorage.commitForEver("${driver}")`);
        const commits = () => page.evaluate("khalaStorage.commits()") as Promise<number>;
        await eventually("it has committed", async () => (await commits()) > 100);
        if (round > 0) continue;
        // What a browser still has in memory it writes when it is closed: from here on there is something to be damaged.
        before = await commits();
        await browser.quit();
      }
    });
});

function open(driver: string, place: string): Storage {
  return driver === "sqlite" ? sqlite(new DatabaseSync(place)) : asyncStorage(new FileAsyncStorage(place));
}

/** Resolves with the last commit that the program said was done before it was killed. */
async function commitUntilKilled(driver: string, place: string, commits: number): Promise<number> {
  const file = programFile("storage_writer");
  const child = spawn(process.execPath, ["--conditions=khala-source", file, driver, place], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const ended = once(child, "close");
  let last = 0;
  let lines = 0;
  for await (const line of createInterface({ input: child.stdout })) {
    last = Number(line);
    if (++lines === commits) child.kill("SIGKILL");
  }
  await ended;
  expect(lines).toBeGreaterThanOrEqual(commits);
  return last;
}
