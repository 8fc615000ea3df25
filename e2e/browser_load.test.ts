import { setTimeout as delay } from "node:timers/promises";
import { canonicalJson } from "@khala/contracts";
import { runSummaries } from "@khala/server";
import type { Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { chromiumHere, startChromium, type TestBrowser } from "./support/chromium.ts";
import { type DashboardServer, DEVELOPER, startDashboard } from "./support/dashboard.ts";
import { live } from "./support/demo.ts";

vi.setConfig({ testTimeout: 180_000 });

/** Updates of a batch, and batches, ten in a second. */
const BATCH = 100;
const BATCHES = 30;
const DOCUMENTS = 200;

/** Collects, from the page's first moment, how long its main thread was blocked at a time. */
const WATCH = `window.blocked = [];
new PerformanceObserver((list) => { for (const { duration } of list.getEntries()) window.blocked.push(duration); })
  .observe({ type: "longtask" });`;

describe.skipIf(!chromiumHere())("a page that gets a thousand updates in a second", () => {
  let browser: TestBrowser;
  let server: DashboardServer;
  beforeAll(async () => {
    [browser, server] = await Promise.all([startChromium(), startDashboard()]);
    await write(Array.from({ length: DOCUMENTS }, (_, i) => i));
  });
  afterAll(async () => {
    await browser?.[Symbol.asyncDispose]();
    await server?.[Symbol.asyncDispose]();
  });

  const versions = new Map<string, number>();
  /** Gives each of these documents its next version, together, as a projection does that is behind. */
  async function write(numbers: readonly number[]): Promise<void> {
    const writes = numbers.map((number) => {
      const docKey = `run:load-${String(number).padStart(3, "0")}`;
      const version = (versions.get(docKey) ?? 0) + 1;
      versions.set(docKey, version);
      const payload = canonicalJson({
        title: `Load ${number}`,
        status: "running",
        steps: version,
        updated_at: new Date().toISOString(),
      });
      return {
        docKey,
        docVersion: BigInt(version),
        op: "upsert" as const,
        payload,
        org: DEVELOPER.org_id,
        audience: null,
      };
    });
    await server.khala.sync.sink.commit(runSummaries, writes);
  }

  /** As many updates as were asked for, whatever the machine makes of the time between them. */
  async function load(): Promise<number> {
    const began = performance.now();
    for (let batch = 0; batch < BATCHES; batch++) {
      const due = began + batch * 100;
      await delay(Math.max(0, due - performance.now()));
      await write(Array.from({ length: BATCH }, (_, i) => (batch * BATCH + i) % DOCUMENTS));
    }
    return Math.round((BATCHES * BATCH) / ((performance.now() - began) / 1_000));
  }

  /** Says how it went, for who reads the log: a test cannot promise it on any machine. */
  async function report(page: Page, room: string, rate: number): Promise<void> {
    const blocked = await page.evaluate<number[]>("window.blocked.splice(0)");
    const longest = Math.round(Math.max(0, ...blocked));
    console.log(`${room}: ${rate} updates/s, ${blocked.length} long tasks, the longest ${longest} ms`);
  }

  test("Home goes on answering, and ends with the documents that changed last", async () => {
    await using visitor = await browser.context();
    await visitor.browser.addInitScript({ content: WATCH });
    const page = await live(await visitor.open(server.url));
    const list = page.getByRole("list", { name: "Documents that changed last" });
    await list.getByRole("link").first().waitFor();
    await page.evaluate("window.blocked.splice(0)");
    const loading = load();
    await page.keyboard.press("ControlOrMeta+k");
    await page.getByRole("combobox", { name: "Go to anything" }).fill("settings");
    await page.getByRole("option", { name: /settings/ }).waitFor();
    await page.keyboard.press("Escape");
    await report(page, "Home", await loading);
    for (const last of [7, 77, 177]) await write([last]);
    for (const last of ["007", "077", "177"]) await list.locator(`a[title="run:load-${last}"]`).waitFor();
    expect(visitor.problems).toEqual([]);
  });

  test("the table of documents goes on answering, and ends with every version", async () => {
    await using visitor = await browser.context();
    await visitor.browser.addInitScript({ content: WATCH });
    const page = await live(await visitor.open(`${server.url}/sync?topic=${runSummaries.topic}`));
    const grid = page.getByRole("grid", { name: `Documents of ${runSummaries.topic}` });
    await grid.getByText("run:load-000").waitFor();
    await page.evaluate("window.blocked.splice(0)");
    const loading = load();
    await grid.focus();
    await page.keyboard.press("End");
    await grid.getByText("run:load-199").waitFor();
    await page.keyboard.press("Home");
    await report(page, "Sync", await loading);
    for (const key of ["run:load-000", "run:load-005"]) {
      const version = grid
        .getByRole("row", { name: new RegExp(key) })
        .getByRole("gridcell", { name: String(versions.get(key)), exact: true });
      await version.waitFor();
    }
    expect(visitor.problems).toEqual([]);
  });
});
