import { bundleForBrowser } from "@khala/test-support/browser/bundle";
import { chromiumHere, startChromium, type TestBrowser } from "@khala/test-support/browser/chromium";
import { startWebApp, type WebApp } from "@khala/test-support/browser/web_app";
import { eventually } from "@khala/test-support/kit/eventually";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { programFile } from "@khala/test-support/processes/programs";
import { startTcpProxy, type TcpProxy } from "@khala/test-support/processes/tcp_proxy";
import { startServer, type TestServer } from "@khala/test-support/servers/servers";
import type { Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";

/** What a worker told its page. */
interface Picture {
  readonly role: string;
  readonly phase: string;
  readonly documents: Readonly<Record<string, string>>;
}

/** Keeps everything that its worker says. */
const PAGE = `
  globalThis.pictures = [];
  globalThis.start = (kind, options) => {
    const worker = new globalThis[kind]("/worker.js", { type: "module" });
    const port = worker.port ?? worker;
    worker.onerror = ({ message }) => console.error(message);
    port.onmessage = ({ data }) => pictures.push(data);
    port.postMessage(options);
  };
`;

describe.skipIf(!chromiumHere())("a client in a worker", () => {
  let browser: TestBrowser;
  let app: WebApp;
  let database: TestDatabase;
  let server: TestServer;
  let proxy: TcpProxy;
  beforeAll(async () => {
    const program = programFile("sync_worker");
    app = await startWebApp(PAGE, { "/worker.js": await bundleForBrowser(program, "es") });
    browser = await startChromium();
    database = await testDatabase();
    server = await startServer(database.url, { settings: { KHALA_ORIGINS: app.origin } });
    const { hostname, port } = new URL(server.url);
    proxy = await startTcpProxy({ host: hostname, port: Number(port) });
  });
  afterAll(async () => {
    await browser?.[Symbol.asyncDispose]();
    await proxy?.[Symbol.asyncDispose]();
    await server?.[Symbol.asyncDispose]();
    await app?.[Symbol.asyncDispose]();
    await database?.[Symbol.asyncDispose]();
  });

  const pictures = (page: Page) => page.evaluate("pictures") as Promise<Picture[]>;

  function shows(page: Page, phase: string, documents: Picture["documents"]): Promise<Picture> {
    const what = `${phase} ${JSON.stringify(documents)}`;
    return eventually(what, async () => {
      const last = (await pictures(page)).at(-1);
      if (last?.phase === phase && JSON.stringify(last.documents) === JSON.stringify(documents)) return last;
      return undefined;
    }) as Promise<Picture>;
  }

  for (const [kind, roles] of [
    ["Worker", ["follower", "leader"]],
    ["SharedWorker", ["leader", "leader"]],
  ] as const)
    it(`${kind}: live updates, a start from the cache without a connection, and the rest once it is back`, async () => {
      await using context = await browser.context();
      const org = `org-${kind}`;
      const [a, b] = [`run:${org}/a`, `run:${org}/b`];
      const token = await server.token({ org_id: org });
      const begin = async (page: Page) => {
        const options = { url: proxy.through(server.url), token };
        await page.evaluate(`start("${kind}", ${JSON.stringify(options)})`);
      };
      const open = async () => {
        const page = await context.open(app.origin);
        await begin(page);
        return page;
      };
      await server.write({ key: a, version: 1, org, payload: { n: 1 } });
      const page = await open();
      await shows(page, "live", { [a]: "1" });
      await server.write({ key: a, version: 2, org, payload: { n: 2 } });
      await shows(page, "live", { [a]: "2" });

      const second = await open();
      const [one, two] = [await shows(page, "live", { [a]: "2" }), await shows(second, "live", { [a]: "2" })];
      expect([one.role, two.role].sort()).toEqual(roles);
      await second.close();

      proxy.refuse();
      await shows(page, "offline", { [a]: "2" });
      await server.write({ key: b, version: 1, org, payload: {} });
      await page.reload();
      await begin(page);
      await shows(page, "offline", { [a]: "2" });
      proxy.resume();
      await shows(page, "live", { [a]: "2", [b]: "1" });
      // Nothing that was there was gone in between.
      const began = (await pictures(page)).findIndex(({ documents }) => a in documents);
      for (const { documents } of (await pictures(page)).slice(began)) expect(documents[a]).toBe("2");
      // Browsers themselves say that a line is dead.
      expect(context.problems.filter((problem) => !problem.includes("net::ERR_"))).toEqual([]);
    });
});
