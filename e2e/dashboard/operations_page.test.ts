import { seriousFindings } from "@khala/test-support/browser/axe";
import { chromiumHere } from "@khala/test-support/browser/chromium";
import { type Demo, live, overflow, startDemo } from "@khala/test-support/browser/demo";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";

vi.setConfig({ testTimeout: 120_000 });

const TABS = ["load", "sockets", "closes", "errors", "traces", "audit", "quotas", "config"];

describe.skipIf(!chromiumHere())("the Operations page", () => {
  let demo: Demo;
  beforeAll(async () => {
    demo = await startDemo();
  });
  afterAll(() => demo?.[Symbol.asyncDispose]());

  test("lists a socket with its subscriptions and positions", async () => {
    await using visitor = await demo.visitor();
    const home = await live(await visitor.open(demo.url));
    await home.getByRole("list", { name: "Recently changed documents" }).getByRole("link").first().waitFor();
    await using operator = await demo.visitor();
    const page = await live(await operator.open(`${demo.url}/operations?tab=sockets`));
    await page.getByRole("combobox", { name: "Filter" }).fill("follows:runtime.");
    const rows = page.getByRole("grid", { name: "Open sockets" }).getByRole("row");
    await rows.nth(1).click();
    await page
      .getByRole("complementary")
      .getByRole("link", { name: /^[1-9]/ })
      .first()
      .waitFor();
    expect(await seriousFindings(page)).toEqual([]);
    await page.keyboard.press("Escape");
    await page.getByRole("complementary").waitFor({ state: "detached" });
    expect(operator.problems).toEqual([]);
  });

  test("lists a closed socket with its subject and reason", async () => {
    {
      await using visitor = await demo.visitor();
      await live(await visitor.open(demo.url));
    }
    await using operator = await demo.visitor();
    const page = await live(await operator.open(`${demo.url}/operations?tab=closes`));
    const closes = page.getByRole("grid", { name: "Closed sockets" });
    await closes.getByRole("row", { name: /dev/ }).first().waitFor();
  });

  test("counts an error by its code, with what to do", async () => {
    await fetch(`${demo.url}/ops/v1/overview`, { headers: { authorization: "Bearer nonsense" } });
    await using operator = await demo.visitor();
    const page = await live(await operator.open(`${demo.url}/operations?tab=errors`));
    await page.getByRole("row", { name: /invalid_token/ }).click();
    const panel = page.getByRole("complementary");
    await panel.getByRole("heading", { name: "What to do" }).waitFor();
    await panel.getByRole("link", { name: "Sockets closed with this code" }).click();
    await page.waitForURL(/tab=closes&q=reason%3Ainvalid_token/);
  });

  test("shows a trace as a waterfall, and the details of a span", async () => {
    const token = await demo.token(["blackboard:write"]);
    const published = await fetch(`${demo.url}/blackboard/v1/artifacts`, {
      method: "POST",
      headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
      body: JSON.stringify({ type: "Topic", payload: { topic: "Moss" }, correlation_id: "moss" }),
    });
    expect(published.status).toBe(201);
    await using operator = await demo.visitor();
    const page = await live(await operator.open(`${demo.url}/operations?tab=traces&correlation=moss`));
    await page.getByRole("grid", { name: "Traces" }).getByRole("link").first().click();
    await page.waitForURL(/trace=[0-9a-f]{32}/);
    await page.getByRole("button", { name: /^process writer/ }).click();
    const panel = page.getByRole("complementary");
    await panel.getByRole("link", { name: "writer" }).waitFor();
    await panel.getByRole("link", { name: "moss" }).waitFor();
    expect(await seriousFindings(page)).toEqual([]);
    await page.getByRole("button", { name: /^process writer/ }).press("ArrowDown");
    expect(new URL(page.url()).searchParams.get("span")).toMatch(/^[0-9a-f]{16}$/);
  });

  test("shows what an org uses of its quotas", async () => {
    await using operator = await demo.visitor();
    const page = await live(await operator.open(`${demo.url}/operations?tab=quotas`));
    await page.getByRole("combobox", { name: "Filter" }).fill("quota:sockets");
    const rows = page.getByRole("grid", { name: "Quotas" }).getByRole("row");
    await rows.filter({ hasText: /^demo\s*sockets\s*[1-9]/ }).waitFor();
  });

  test("filters settings, and hides secrets", async () => {
    await using operator = await demo.visitor();
    const page = await live(await operator.open(`${demo.url}/operations?tab=config`));
    await page.getByRole("combobox", { name: "Filter" }).fill("is:set ");
    const rows = page.getByRole("grid", { name: "Settings in effect" }).getByRole("row");
    await rows.filter({ hasText: "KHALA_DATA_DIR" }).waitFor();
    await rows.filter({ hasText: "KHALA_HOST" }).waitFor({ state: "detached" });
    expect(await rows.filter({ hasText: "DATABASE_URL" }).innerText()).toContain("***");
    expect(new URL(page.url()).searchParams.get("q")).toBe("is:set ");
  });

  test("supports keyboard navigation in tables, and renders visible rows only", async () => {
    await using operator = await demo.visitor();
    const page = await live(await operator.open(`${demo.url}/operations?tab=config`));
    const grid = page.getByRole("grid", { name: "Settings in effect" });
    await grid.focus();
    await page.keyboard.press("ArrowDown");
    await page.keyboard.press("ArrowDown");
    await page.keyboard.press("Enter");
    await page.waitForURL(/item=KHALA_PORT/);
    await page.keyboard.press("End");
    const last = await grid.getAttribute("aria-rowcount");
    await grid.locator(`[aria-rowindex="${last}"][aria-selected=true]`).waitFor();
    expect(await grid.getByRole("row").count()).toBeLessThan(Number(last));
  });

  test.for([
    { colorScheme: "light", width: 1280 },
    { colorScheme: "dark", width: 390 },
  ] as const)("every tab is accessible: $colorScheme, $width wide", async ({ colorScheme, width }) => {
    await using operator = await demo.visitor({ colorScheme, viewport: { width, height: 844 } });
    const page = await operator.open();
    for (const tab of TABS) {
      await page.goto(`${demo.url}/operations?tab=${tab}`);
      await live(page);
      await page.getByRole("tabpanel").waitFor();
      expect(await seriousFindings(page), tab).toEqual([]);
      expect(await overflow(page), tab).toBeLessThanOrEqual(0);
    }
    expect(operator.problems).toEqual([]);
  });
});
