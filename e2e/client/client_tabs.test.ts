import { bundleForBrowser } from "@khala/test-support/browser/bundle";
import {
  chromiumHere,
  startChromium,
  type TestBrowser,
  type TestContext,
} from "@khala/test-support/browser/chromium";
import { eventually } from "@khala/test-support/kit/eventually";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { programFile } from "@khala/test-support/processes/programs";
import { newConv } from "@khala/test-support/servers/ai_chat";
import { startConversations } from "@khala/test-support/servers/conversations";
import { startServer, type TestServer } from "@khala/test-support/servers/servers";
import type { Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";

interface Screen {
  readonly state: string;
  readonly role: string;
  readonly phase: string;
  readonly documents: Readonly<Record<string, string>>;
}

describe.skipIf(!chromiumHere())("tabs of one browser", () => {
  let browser: TestBrowser;
  let script: string;
  let database: TestDatabase;
  let server: TestServer;
  beforeAll(async () => {
    script = await bundleForBrowser(programFile("tabs_page"));
    browser = await startChromium();
    database = await testDatabase();
    server = await startServer(database.url);
  });
  afterAll(async () => {
    await browser?.[Symbol.asyncDispose]();
    await server?.[Symbol.asyncDispose]();
    await database?.[Symbol.asyncDispose]();
  });

  /** A person of the test's own, with documents of their own and a browser to look at them. */
  async function person() {
    const org = `org-${crypto.randomUUID()}`;
    const token = await server.token({ org_id: org, sub: "ana" });
    const context = await browser.context();
    await context.inject(script);
    const documents: Record<string, string> = {};
    return {
      context,
      documents,
      async write(key: string): Promise<void> {
        const version = Number(documents[`run:${org}/${key}`] ?? 0) + 1;
        documents[`run:${org}/${key}`] = String(version);
        await server.write({ key: `run:${org}/${key}`, version, org, payload: { version } });
      },
      async open(): Promise<Page> {
        const page = await context.open(`${server.url}/healthz`);
        await page.evaluate(`khalaTabs.start("${token}")`);
        return page;
      },
      [Symbol.asyncDispose]: () => context[Symbol.asyncDispose](),
    };
  }

  const screen = (page: Page) => page.evaluate("khalaTabs.screen()") as Promise<Screen>;

  /** Waits until a page shows exactly these documents, live. */
  async function shows(page: Page, documents: Readonly<Record<string, string>>): Promise<Screen> {
    return eventually(`the page is live with ${Object.keys(documents).length} documents`, async () => {
      const now = await screen(page);
      const same = Object.keys(documents).every((key) => now.documents[key] === documents[key]);
      const size = Object.keys(now.documents).length === Object.keys(documents).length;
      return now.state === "live" && now.phase === "live" && same && size && now;
    });
  }

  function sockets(count: number): Promise<unknown> {
    return eventually(
      `${count} sockets`,
      async () => (await server.metric("khala_gateway_sockets")) === count,
    );
  }

  function noProblems({ problems }: TestContext): void {
    expect(problems).toEqual([]);
  }

  it("two pages share one socket, and both show every change", async () => {
    await using ana = await person();
    await ana.write("run-1");
    const first = await ana.open();
    await shows(first, ana.documents);
    const second = await ana.open();
    await shows(second, ana.documents);
    for (const key of ["run-2", "run-1", "run-3"]) await ana.write(key);
    const roles = [await shows(first, ana.documents), await shows(second, ana.documents)].map(
      ({ role }) => role,
    );
    expect(roles).toEqual(["leader", "follower"]);
    await sockets(1);
    noProblems(ana.context);
  });

  for (const way of ["closed", "crashed"])
    it(`when the leading page is ${way}, the other becomes live and has missed nothing`, async () => {
      await using ana = await person();
      await ana.write("run-1");
      const first = await ana.open();
      await shows(first, ana.documents);
      const pages = [await ana.open(), await ana.open()];
      for (const page of pages) await shows(page, ana.documents);
      const writing = (async () => {
        for (let n = 0; n < 40; n++) await ana.write(`run-${n % 7}`);
      })();
      if (way === "closed") await first.close();
      else await first.goto("chrome://crash").catch(() => {});
      await writing;
      await eventually("one of them leads", async () => {
        const roles = await Promise.all(pages.map(async (page) => (await screen(page)).role));
        return roles.sort().join() === "follower,leader";
      });
      for (const page of pages) await shows(page, ana.documents);
      await sockets(1);
      await ana.write("run-100");
      for (const page of pages) await shows(page, ana.documents);
      expect(ana.context.problems.filter((problem) => !problem.startsWith("crashed"))).toEqual([]);
    });

  it("a frozen leading page is replaced, and both are live when it thaws", async () => {
    await using ana = await person();
    await ana.write("run-1");
    const first = await ana.open();
    await shows(first, ana.documents);
    const second = await ana.open();
    await shows(second, ana.documents);
    const session = await ana.context.browser.newCDPSession(first);
    // A debugger does to a page what `alert()`, a busy loop or the background of a phone does: everything in it stands still.
    await session.send("Debugger.enable");
    await session.send("Debugger.pause");
    await eventually("the other page leads", async () => (await screen(second)).role === "leader");
    await ana.write("run-2");
    await shows(second, ana.documents);
    await session.send("Debugger.disable");
    await eventually("the first page follows", async () => (await screen(first)).role === "follower");
    await ana.write("run-3");
    for (const page of [second, first]) await shows(page, ana.documents);
    await sockets(1);
    noProblems(ana.context);
  });

  it("a page that was away starts from the leader's stored documents, and continues from there", async () => {
    await using ana = await person();
    for (let n = 0; n < 300; n++) await ana.write(`run-${n}`);
    const first = await ana.open();
    await shows(first, ana.documents);
    await first.close();
    await sockets(0);
    await ana.write("run-1");
    const page = await ana.open();
    await shows(page, ana.documents);
    noProblems(ana.context);
  });

  it("a conversation is the same on both pages, through the end of the leader", async () => {
    await using talks = await startConversations(database.url);
    await using context = await browser.context();
    await context.inject(script);
    const [token, convId] = [await talks.token(), newConv()];
    const open = async () => {
      const page = await context.open(`${talks.url}/healthz`);
      await page.evaluate(`khalaTabs.start("${token}", "${convId}")`);
      await eventually("it is live", async () => (await page.evaluate("khalaTabs.health()")) === "live");
      return page;
    };
    const [first, second] = [await open(), await open()];
    const shows = (page: Page, text: string) =>
      eventually(`the page shows ${text}`, async () => (await page.evaluate("khalaTabs.text()")) === text);
    const { run_id } = (await second.evaluate('khalaTabs.send("Tell me.")')) as { run_id: string };
    const answer = await talks.engine.turn(run_id);
    answer.say("Once ");
    for (const page of [first, second]) await shows(page, "Tell me.|Once ");
    answer.say("upon ");
    await first.close();
    answer.say("a time.");
    answer.finish();
    await shows(second, "Tell me.|Once upon a time.");
    // What was shown only ever grew: nothing flickered, nothing was there twice.
    const shown = (await second.evaluate("khalaTabs.shown")) as string[];
    for (const [i, text] of shown.slice(1).entries())
      expect(text.startsWith(shown[i]!), `${shown[i]} → ${text}`).toBe(true);
    const third = await open();
    await shows(third, "Tell me.|Once upon a time.");
    await eventually("one socket", async () => (await talks.metric("khala_gateway_sockets")) === 1);
    noProblems(context);
  });
});
