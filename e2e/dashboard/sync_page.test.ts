import { agent } from "@khala/server";
import { seriousFindings } from "@khala/test-support/browser/axe";
import { chromiumHere, startChromium, type TestBrowser } from "@khala/test-support/browser/chromium";
import { type DashboardServer, DEVELOPER, startDashboard } from "@khala/test-support/browser/dashboard";
import { eventually } from "@khala/test-support/kit/eventually";
import { startConvexStandIn } from "@khala/test-support/servers/convex_stand_in";
import type { Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";

const RUNS = "runtime.run_summaries";
const WORKERS = "runtime.codex_worker_summaries";
const MANY = 100_000;
/** An app with agents has the topics of the board, which the Blackboard page subscribes to. */
const agents = [agent("writer", { consumes: "Topic", run: () => ({ type: "Draft", payload: null }) })];

vi.setConfig({ testTimeout: 180_000, hookTimeout: 180_000 });

describe.skipIf(!chromiumHere())("the Sync page", () => {
  let browser: TestBrowser;
  let server: DashboardServer;
  beforeAll(async () => {
    [browser, server] = await Promise.all([startChromium(), startDashboard({ agents })]);
    // As many documents as a projection would have made in an hour.
    await server.database.query({
      text: `INSERT INTO runtime.sync_run_summaries (doc_key, doc_version, payload, payload_hash, org_id, watermark)
        SELECT 'run:many-' || lpad(n::text, 6, '0'), 1, convert_to('{"n":' || n || '}', 'UTF8'),
               sha256(convert_to('{"n":' || n || '}', 'UTF8')), $1, 0
        FROM generate_series(1, ${MANY}) AS n`,
      values: [DEVELOPER.org_id],
    });
    await server.database.query({ text: "ANALYZE runtime.sync_run_summaries" });
  });
  afterAll(async () => {
    await browser?.[Symbol.asyncDispose]();
    await server?.[Symbol.asyncDispose]();
  });

  const happen = (worker: string, type: string, data: object = {}) =>
    server.post(`/runtime/v1/workers/${worker}/events`, {
      events: [{ event_id: crypto.randomUUID(), type, data }],
    });
  /** Later documents are counted, not shown: they must exist before the page opens. */
  const projected = (worker: string, version: number) =>
    eventually(`version ${version} of ${worker}`, async () => {
      const headers = { authorization: `Bearer ${await server.token()}` };
      const answer = await fetch(`${server.url}/sync/v1/doc/worker:${worker}`, { headers });
      return answer.ok && Number(((await answer.json()) as { doc_version: string }).doc_version) >= version;
    });
  const rowsDrawn = (page: Page) => page.locator(".table-row").count();

  test("scrolls through 100,000 documents, and renders visible rows only", async () => {
    await using context = await browser.context();
    const page = await context.open(`${server.url}/sync?topic=${RUNS}`);
    await page.getByText("run:many-000001").waitFor();
    await page.getByText(/of about 100,000 documents/).waitFor();
    await page.getByRole("button", { name: "Load all" }).click();
    await page.getByText("100,000 documents", { exact: true }).waitFor({ timeout: 120_000 });
    const grid = page.getByRole("grid", { name: `Documents of ${RUNS}` });
    await grid.focus();
    await page.keyboard.press("End");
    await page.getByText("run:many-100000").waitFor();
    expect(await rowsDrawn(page)).toBeLessThan(100);
    await page.keyboard.press("Home");
    await page.getByText("run:many-000001").waitFor();
    expect(context.problems).toEqual([]);
  });

  test("loads more while scrolling", async () => {
    await using context = await browser.context();
    const page = await context.open(`${server.url}/sync?topic=${RUNS}`);
    await page.getByText("run:many-000001").waitFor();
    const grid = page.getByRole("grid", { name: `Documents of ${RUNS}` });
    await grid.focus();
    for (const last of [500, 1_000, 1_500]) {
      await page.getByText(`${last.toLocaleString("en")} of about 100,000 documents`).waitFor();
      await page.keyboard.press("End");
      await page.getByText(`run:many-${String(last).padStart(6, "0")}`).waitFor();
    }
    expect(context.problems).toEqual([]);
  });

  test("finds a document by part of its key, and keeps the search in the URL", async () => {
    await using context = await browser.context();
    const page = await context.open(`${server.url}/sync?topic=${RUNS}`);
    await page.getByRole("searchbox", { name: "Search documents" }).fill("099999");
    await page.getByText("run:many-099999").waitFor();
    expect(new URL(page.url()).searchParams.get("q")).toBe("099999");
    await page.reload();
    await page.getByText("run:many-099999").waitFor();
    expect(await rowsDrawn(page)).toBe(1);
    expect(context.problems).toEqual([]);
  });

  test("fetches a document whose versions left the journal, without listing its topic", async () => {
    await using context = await browser.context();
    const page = await context.open(`${server.url}/sync`);
    const asked: string[] = [];
    page.on("request", (request) => asked.push(new URL(request.url()).pathname));
    await page.goto(`${server.url}/sync?topic=${RUNS}&doc=run:many-099999`);
    const panel = page.getByRole("complementary", { name: "Document" });
    await panel.getByText("99999", { exact: true }).waitFor();
    expect(asked).toContain("/sync/v1/doc/run%3Amany-099999");
    expect(asked.filter((path) => path.startsWith("/sync/v1/list/"))).toEqual([]);
    expect(context.problems).toEqual([]);
  });

  test("shows what each version of a document changed", async () => {
    await using context = await browser.context();
    await happen("historic", "worker.registered", { name: "Ada" });
    await happen("historic", "worker.status", { status: "busy" });
    await happen("historic", "worker.status", { status: "idle" });
    await projected("historic", 3);
    const page = await context.open(`${server.url}/sync?topic=${WORKERS}`);
    const grid = page.getByRole("grid", { name: `Documents of ${WORKERS}` });
    await grid.getByText("worker:historic").waitFor();
    await grid.focus();
    await page.keyboard.press("ArrowDown");
    await page.keyboard.press("Enter");
    const panel = page.getByRole("complementary", { name: "Document" });
    await panel.getByText('"idle"').waitFor();
    await panel.getByRole("tab", { name: /History/ }).click();
    await panel.getByRole("heading", { name: "From version 2 to 3" }).waitFor();
    await panel.getByText('"status": "busy"').waitFor();
    await panel.getByRole("button", { name: /^Version 2/ }).click();
    await panel.getByRole("heading", { name: "From version 1 to 2" }).waitFor();
    await panel.getByText('"status": "registered"').waitFor();
    expect(context.problems).toEqual([]);
  });

  test("updates versions in place, and shows new documents on request", async () => {
    await using context = await browser.context();
    await happen("live-b", "worker.registered");
    await projected("live-b", 1);
    const page = await context.open(`${server.url}/sync?topic=${WORKERS}`);
    const row = page.getByRole("row", { name: /worker:live-b/ });
    await row.waitFor();
    const before = await row.boundingBox();
    await happen("live-a", "worker.registered");
    await happen("live-b", "worker.status", { status: "busy" });
    await row.getByRole("gridcell", { name: "2", exact: true }).waitFor();
    const fresh = page.getByRole("button", { name: "1 new" });
    await fresh.waitFor();
    expect(await page.getByText("worker:live-a").count()).toBe(0);
    expect(await row.boundingBox()).toEqual(before);
    await fresh.click();
    await page.getByText("worker:live-a").waitFor();
    expect(context.problems).toEqual([]);
  });

  test("lists every client with its cursor and how far behind it is", async () => {
    await using context = await browser.context();
    const page = await context.open(`${server.url}/sync`);
    const topics = page.getByRole("grid", { name: "Topics" });
    await topics.getByRole("row", { name: new RegExp(RUNS) }).waitFor();
    await page.getByRole("tab", { name: "Clients" }).click();
    await page.getByRole("heading", { name: "No subscribers" }).waitFor();
    await using other = await browser.context();
    await other.open(`${server.url}/blackboard?correlation=nothing`);
    const clients = page.getByRole("grid", { name: /Connected clients/ });
    await clients.getByRole("row", { name: /dev blackboard\.correlations up to date/ }).waitFor();
    await page.getByRole("tab", { name: "Parity" }).click();
    await page.getByRole("heading", { name: "No mirror configured" }).waitFor();
    expect(context.problems).toEqual([]);
  });

  test.each([
    ["light", 1280],
    ["dark", 390],
  ] as const)("is accessible, %s and %i pixels wide", async (colorScheme, width) => {
    await using context = await browser.context({
      colorScheme,
      reducedMotion: "reduce",
      viewport: { width, height: 800 },
    });
    await happen("axe", "worker.registered", { name: "Ada" });
    await happen("axe", "worker.status", { status: "busy" });
    await projected("axe", 2);
    const page = await context.open(`${server.url}/sync`);
    await page.getByText(RUNS).waitFor();
    expect(await seriousFindings(page), "topics").toEqual([]);
    await page.goto(`${server.url}/sync?topic=${WORKERS}&doc=worker:axe&view=history`);
    await page.getByRole("heading", { name: /From version/ }).waitFor();
    expect(await seriousFindings(page), "a document").toEqual([]);
    for (const tab of ["clients", "parity"]) {
      await page.goto(`${server.url}/sync?tab=${tab}`);
      await page.locator(".tab-panel .notice, .tab-panel .table").first().waitFor();
      expect(await seriousFindings(page), tab).toEqual([]);
    }
    expect(context.problems).toEqual([]);
  });

  test("finds a document that differs in the mirror", async () => {
    await using convex = await startConvexStandIn();
    const settings = { KHALA_MIRROR: "convex", CONVEX_URL: convex.url };
    await using doubled = await startDashboard({ settings });
    await doubled.post("/runtime/v1/runs/r1/events", {
      events: [{ event_id: "1", type: "run.started", data: {} }],
    });
    const held = convex.topic(RUNS);
    await expect.poll(() => held.size, { timeout: 30_000 }).toBe(1);
    for (const [key, document] of held) held.set(key, { ...document, payload_hash: "00".repeat(32) });
    await using context = await browser.context();
    const page = await context.open(`${doubled.url}/sync?tab=parity`);
    const row = page.getByRole("row").filter({ hasText: RUNS });
    await row.getByText("never").waitFor();
    await page.getByRole("button", { name: "Compare now" }).click();
    await row.getByText("never").waitFor({ state: "detached" });
    expect(await row.locator(".failed").textContent()).toBe("1");
    expect(await seriousFindings(page)).toEqual([]);
    expect(context.problems).toEqual([]);
  });
});
