import { mkdtemp, rm } from "node:fs/promises";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { createKhala, type Khala, readConfig } from "@khala/server";
import { chromiumHere, startChromium, type TestBrowser } from "@khala/test-support/browser/chromium";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import app from "../../examples/web_chat/app.ts";
import { must, ROOT } from "../../scripts/run.ts";

const FOLDER = join(ROOT, "examples/web_chat");
const WORDS = "one two three four five six seven eight";

test("web_chat has the types that it claims", { timeout: 300_000 }, async () => {
  await must("tsc", ["--noEmit", "-p", FOLDER]);
});

describe.skipIf(!chromiumHere())("web_chat in a browser", () => {
  let database: TestDatabase;
  let khala: Khala;
  let page: BuiltPage;
  let browser: TestBrowser;
  beforeAll(async () => {
    database = await testDatabase();
    const config = readConfig({
      DATABASE_URL: database.url,
      KHALA_PORT: "0",
      KHALA_LOG_LEVEL: "silent",
      KHALA_AUTH_SECRETS: `test:${Buffer.alloc(32, 7).toString("base64")}`,
    });
    khala = await createKhala(app, { config, dev: true });
    page = await buildPage(khala.url);
    browser = await startChromium();
  });
  afterAll(async () => {
    await browser?.[Symbol.asyncDispose]();
    await page?.[Symbol.asyncDispose]();
    await khala?.stop();
    await database?.[Symbol.asyncDispose]();
  });

  test("an answer streams, continues after a reload, and is there afterwards", async () => {
    await using visitor = await browser.context();
    const tab = await visitor.open(page.url);
    await tab.getByLabel("Message").fill(`/slow ${WORDS}`);
    await tab.getByRole("button", { name: "Send" }).click();
    const answer = tab.locator("[data-role=assistant]");
    await answer.filter({ hasText: "one two" }).waitFor();
    await tab.reload();
    await answer.filter({ hasText: WORDS }).waitFor();
    expect(await answer.count()).toBe(1);
    await tab.getByRole("button", { name: "Send" }).waitFor();
    await tab.locator("aside em", { hasText: "completed" }).waitFor();

    await tab.reload();
    await answer.filter({ hasText: WORDS }).waitFor();
    await tab.locator("[data-role=user]", { hasText: `/slow ${WORDS}` }).waitFor();
    await tab.getByRole("status").filter({ hasText: "Live" }).waitFor();
    expect(visitor.problems).toEqual([]);
  });

  test("shows an answer that ends after a new page has read the history, and before it joins", async () => {
    const long = Array.from({ length: 12 }, (_, i) => `word${i}`).join(" ");
    await using visitor = await browser.context();
    const tab = await visitor.open(page.url);
    await tab.getByLabel("Message").fill(`/slow ${long}`);
    await tab.getByRole("button", { name: "Send" }).click();
    const answer = tab.locator("[data-role=assistant]");
    await answer.filter({ hasText: "word0 word1" }).waitFor();
    await tab.route("**/ai/chat/*/stream", async (route) => {
      await tab.locator("aside li", { hasText: "word0" }).locator("em", { hasText: "completed" }).waitFor();
      await route.continue();
    });
    await tab.reload();
    await answer.filter({ hasText: long }).waitFor();
    expect(await answer.count()).toBe(1);
    expect(visitor.problems).toEqual([]);
  });
});

interface BuiltPage extends AsyncDisposable {
  readonly url: string;
}

/** Builds the page as its README says, and serves it before the server. */
async function buildPage(serverUrl: string): Promise<BuiltPage> {
  const outDir = await mkdtemp(join(tmpdir(), "khala-web-chat-"));
  const require = createRequire(join(ROOT, "apps/dashboard/package.json"));
  const vite = (await import(pathToFileURL(require.resolve("vite")).href)) as typeof import("vite");
  const proxyTo = { target: serverUrl, ws: true };
  const options = { root: FOLDER, configFile: join(FOLDER, "vite.config.ts"), logLevel: "error" } as const;
  await vite.build({ ...options, build: { outDir, emptyOutDir: true } });
  const { proxy = {} } = (await vite.resolveConfig(options, "serve")).preview;
  const preview = await vite.preview({
    ...options,
    build: { outDir },
    preview: {
      host: "127.0.0.1",
      port: 0,
      proxy: Object.fromEntries(Object.keys(proxy).map((path) => [path, proxyTo])),
    },
  });
  return {
    url: preview.resolvedUrls!.local[0]!,
    async [Symbol.asyncDispose]() {
      await preview.close();
      await rm(outDir, { recursive: true });
    },
  };
}
