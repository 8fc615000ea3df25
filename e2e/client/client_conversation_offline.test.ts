import { bundleForBrowser } from "@khala/test-support/browser/bundle";
import { chromiumHere, startChromium, type TestBrowser } from "@khala/test-support/browser/chromium";
import { startWebApp, type WebApp } from "@khala/test-support/browser/web_app";
import { eventually } from "@khala/test-support/kit/eventually";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { programFile } from "@khala/test-support/processes/programs";
import { newConv } from "@khala/test-support/servers/ai_chat";
import { type ConversationServer, startConversations } from "@khala/test-support/servers/conversations";
import type { Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";

/** An app that opens without a network: its service worker has the page and the script. */
const PAGE = `
  await navigator.serviceWorker.register("/offline.js");
  await navigator.serviceWorker.ready;
  await import("/page.js");
`;
const SERVICE_WORKER = `
  oninstall = (event) => event.waitUntil(caches.open("app").then((cache) => cache.addAll(["/", "/page.js"])));
  onfetch = (event) => {
    if (new URL(event.request.url).origin !== location.origin) return;
    event.respondWith(caches.match(event.request).then((found) => found ?? fetch(event.request)));
  };
`;
/** Everything that is in the database of the page. */
const STORED = `new Promise((resolve, reject) => {
  const opening = indexedDB.open("khala");
  opening.onerror = () => reject(opening.error);
  opening.onsuccess = () => {
    const all = opening.result.transaction("documents").objectStore("documents").getAll();
    all.onsuccess = () => resolve(JSON.stringify(all.result));
    opening.result.close();
  };
})`;

describe.skipIf(!chromiumHere())("a conversation on a device that goes offline", () => {
  let browser: TestBrowser;
  let app: WebApp;
  let database: TestDatabase;
  let server: ConversationServer;
  beforeAll(async () => {
    const program = programFile("tabs_page");
    app = await startWebApp(PAGE, {
      "/page.js": await bundleForBrowser(program, "es"),
      "/offline.js": SERVICE_WORKER,
    });
    browser = await startChromium();
    database = await testDatabase();
    server = await startConversations(database.url, { settings: { KHALA_ORIGINS: app.origin } });
  });
  afterAll(async () => {
    await browser?.[Symbol.asyncDispose]();
    await server?.[Symbol.asyncDispose]();
    await app?.[Symbol.asyncDispose]();
    await database?.[Symbol.asyncDispose]();
  });

  const shows = (page: Page, text: string) =>
    eventually(`the page shows ${text}`, async () => (await page.evaluate("khalaTabs.text()")) === text);

  it("a reload without a network shows the stored messages, and the rest once it is back", async () => {
    await using context = await browser.context();
    const [token, convId] = [await server.token(), newConv()];
    const start = async (page: Page) => {
      await page.waitForFunction("globalThis.khalaTabs");
      await page.evaluate(`khalaTabs.start("${token}", "${convId}", "${server.url}")`);
    };
    const page = await context.open(app.origin);
    await start(page);
    await eventually("it is live", async () => (await page.evaluate("khalaTabs.health()")) === "live");
    const { run_id } = (await page.evaluate('khalaTabs.send("Tell me.")')) as { run_id: string };
    const answer = await server.engine.turn(run_id);
    answer.say("Once ");
    await shows(page, "Tell me.|Once ");
    await eventually("it is kept", async () => String(await page.evaluate(STORED)).includes("Once "));

    await context.browser.setOffline(true);
    answer.say("upon ");
    await page.reload();
    await start(page);
    await shows(page, "Tell me.|Once ");
    expect(await page.evaluate("khalaTabs.fromDevice()")).toBe(true);
    await eventually("it says so", async () => (await page.evaluate("khalaTabs.health()")) === "offline");
    answer.say("a time.");
    answer.finish();

    await context.browser.setOffline(false);
    await shows(page, "Tell me.|Once upon a time.");
    expect(await page.evaluate("[khalaTabs.health(), khalaTabs.fromDevice()]")).toEqual(["live", false]);
    const shown = (await page.evaluate("khalaTabs.shown")) as string[];
    for (const [i, text] of shown.slice(1).entries())
      expect(text.startsWith(shown[i]!), `${shown[i]} → ${text}`).toBe(true);
    // Requests fail without a network, and browsers say so themselves.
    expect(context.problems.filter((problem) => !problem.includes("ERR_INTERNET_DISCONNECTED"))).toEqual([]);
  });
});
