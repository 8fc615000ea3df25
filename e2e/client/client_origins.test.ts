import { bundleForBrowser } from "@khala/test-support/browser/bundle";
import { chromiumHere, startChromium, type TestBrowser } from "@khala/test-support/browser/chromium";
import { startWebApp, type WebApp } from "@khala/test-support/browser/web_app";
import { eventually } from "@khala/test-support/kit/eventually";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { programFile } from "@khala/test-support/processes/programs";
import { startServer } from "@khala/test-support/servers/servers";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

interface Screen {
  readonly state: string;
  readonly phase: string;
  readonly documents: Readonly<Record<string, string>>;
  readonly error?: { readonly message: string };
}

describe.skipIf(!chromiumHere())("a page on another port", () => {
  let browser: TestBrowser;
  let database: TestDatabase;
  let web: WebApp;
  beforeAll(async () => {
    const script = await bundleForBrowser(programFile("tabs_page"));
    web = await startWebApp('import "/page.js"', { "/page.js": script });
    browser = await startChromium();
    database = await testDatabase();
  });
  afterAll(async () => {
    await browser?.[Symbol.asyncDispose]();
    await web?.[Symbol.asyncDispose]();
    await database?.[Symbol.asyncDispose]();
  });

  /** The page at this host, connected to the server. */
  async function visit(server: { readonly url: string }, token: string, host = "127.0.0.1") {
    const visitor = await browser.context();
    const page = await visitor.open(web.origin.replace("127.0.0.1", host));
    await page.waitForFunction("globalThis.khalaTabs");
    await page.evaluate(
      `khalaTabs.start(${JSON.stringify(token)}, undefined, ${JSON.stringify(server.url)})`,
    );
    const screen = () =>
      page.evaluate(
        "(({ error, ...rest }) => ({ ...rest, ...(error && { error: { message: error.message } }) }))(khalaTabs.screen())",
      ) as Promise<Screen>;
    return { visitor, page, screen, [Symbol.asyncDispose]: () => visitor[Symbol.asyncDispose]() };
  }

  test("reads documents and follows them on a development server, and gets no token", async () => {
    await using server = await startServer(database.url);
    const token = await server.token();
    await server.write({ key: "run:one", version: 1, org: "org-1", payload: { title: "One" } });
    for (const host of ["127.0.0.1", "localhost"]) {
      await using tab = await visit(server, token, host);
      await eventually(`the page of ${host} shows the document`, async () => {
        const { state, phase, documents } = await tab.screen();
        return state === "live" && phase === "live" && documents["run:one"] === "1";
      });
      expect(tab.visitor.problems).toEqual([]);
      const minted = await tab.page.evaluate(`fetch(${JSON.stringify(`${server.url}/api/sync/token`)}, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify({ sub: "eve", org_id: "org-1", scopes: ["platform"] }),
      }).then((answer) => answer.status, String)`);
      expect(minted).toBe(401);
    }
  });

  test("is refused by another server, and the error names the address and KHALA_ORIGINS", async () => {
    await using server = await startServer(database.url, { dev: false });
    await using tab = await visit(server, await server.token());
    const message = await eventually("the client has an error", async () => {
      const { error } = await tab.screen();
      return error?.message;
    });
    expect(message).toContain(server.url);
    expect(message).toContain(web.origin);
    expect(message).toContain("KHALA_ORIGINS");
  });
});
