import { storageConformance } from "@khala/client/storage";
import { bundleForBrowser } from "@khala/test-support/browser/bundle";
import {
  chromiumHere,
  startChromium,
  type TestBrowser,
  type TestContext,
} from "@khala/test-support/browser/chromium";
import { programFile } from "@khala/test-support/processes/programs";
import { afterAll, beforeAll, describe, expect, it } from "vitest";

const ORIGIN = "http://localhost/";

describe.skipIf(!chromiumHere())("storages in a real browser", () => {
  let browser: TestBrowser;
  let script: string;
  beforeAll(async () => {
    script = await bundleForBrowser(programFile("storage_page"));
    browser = await startChromium();
  });
  afterAll(() => browser?.[Symbol.asyncDispose]());

  async function place(): Promise<TestContext> {
    const context = await browser.context();
    await context.serve(ORIGIN, script);
    return context;
  }

  for (const driver of ["localStorage", "indexedDb"])
    describe(driver, () => {
      for (const { name } of storageConformance)
        it(name, async () => {
          await using context = await place();
          const page = await context.open(ORIGIN);
          const problem = await page.evaluate(`khalaStorage.check("${driver}", ${JSON.stringify(name)})`);
          expect(problem).toBeUndefined();
          expect(context.problems).toEqual([]);
        });
    });

  it("reports a full localStorage, keeps the last commit, and accepts the next one that fits", async () => {
    await using context = await place();
    const page = await context.open(ORIGIN);
    const result = await page.evaluate("khalaStorage.fill()");
    expect(result).toMatchObject({ code: "limit_exceeded", whole: true, keysLeft: 1 });
    expect((result as { commits: number }).commits).toBeGreaterThan(20);
  });

  it("a newer version of the page upgrades IndexedDB, and the older one reports it instead of blocking", async () => {
    await using context = await place();
    const old = await context.open(ORIGIN);
    const commit = `storage.commit("s", "t", { put: [], remove: [], cursor: { epoch: "e", watermark: "1" } })`;
    await old.evaluate(`globalThis.storage = khalaStorage.indexedDb(); ${commit}`);
    const newer = await context.open(ORIGIN);
    const upgraded = await newer.evaluate(`new Promise((resolve) => {
      const request = indexedDB.open("khala", 2);
      request.onblocked = () => resolve("blocked");
      request.onupgradeneeded = () => {};
      request.onsuccess = () => resolve("upgraded");
    })`);
    expect(upgraded).toBe("upgraded");
    const refused = await old.evaluate(`${commit}.then(() => "stored", (error) => error.code)`);
    expect(refused).toBe("unavailable");
  });

  it("the next commit recreates a database that the browser deleted under a page", async () => {
    await using context = await place();
    const page = await context.open(ORIGIN);
    const cursor = await page.evaluate(`(async () => {
      const storage = khalaStorage.indexedDb();
      await storage.commit("s", "t", { put: [], remove: [], cursor: { epoch: "e", watermark: "1" } });
      await new Promise((resolve) => { indexedDB.deleteDatabase("khala").onsuccess = resolve; });
      const absent = await storage.load("s", "t");
      await storage.commit("s", "t", { put: [], remove: [], cursor: { epoch: "e", watermark: "2" } });
      return [absent, (await storage.load("s", "t")).cursor.watermark];
    })()`);
    expect(cursor).toEqual([undefined, "2"]);
  });
});
