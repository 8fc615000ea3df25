import { chromiumHere } from "@khala/test-support/browser/chromium";
import { type Demo, live, startDemo } from "@khala/test-support/browser/demo";
import { eventually } from "@khala/test-support/kit/eventually";
import type { BrowserContext, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";

vi.setConfig({ testTimeout: 120_000 });

const MINT = "**/api/sync/token";

describe.skipIf(!chromiumHere())("a page with tokens of a few seconds", () => {
  let demo: Demo;
  beforeAll(async () => {
    demo = await startDemo({
      KHALA_AUTH_MIN_TTL_S: "1",
      KHALA_AUTH_MAX_TTL_S: "8",
      KHALA_AUTH_CLOCK_SKEW_S: "0",
    });
  });
  afterAll(() => demo?.[Symbol.asyncDispose]());

  /** Counts the sockets and tokens of a page. */
  function watch(context: BrowserContext) {
    const seen = { sockets: 0, tokens: 0 };
    context.on("page", (page) => page.on("websocket", () => seen.sockets++));
    context.on("response", (response) => {
      if (response.ok() && response.url().endsWith("/api/sync/token")) seen.tokens++;
    });
    return seen;
  }

  const pill = (page: Page) => page.locator(".pill");
  const parked = (page: Page) => page.locator(".pill[data-state=unauthorised]").waitFor({ timeout: 60_000 });

  test("keeps its socket through several tokens", async () => {
    await using visitor = await demo.visitor();
    const seen = watch(visitor.browser);
    const page = await live(await visitor.open(demo.url));
    await eventually("the fourth token", () => seen.tokens >= 4);
    expect(seen.sockets).toBe(1);
    expect(await pill(page).getAttribute("data-state")).toBe("live");
    expect(visitor.problems).toEqual([]);
  });

  test("explains a refused token request, and a click tries again", async () => {
    await using visitor = await demo.visitor();
    const page = await live(await visitor.open(demo.url));
    const error = { code: "missing_authorization", message: "You were signed out." };
    await page.route(MINT, (route) => route.fulfill({ status: 401, json: { error } }));
    await parked(page);
    expect(await pill(page).innerText()).toContain("Not allowed: missing authorization");
    await pill(page).hover();
    await page.getByText("You were signed out.").first().waitFor();

    await page.unroute(MINT);
    await pill(page).click();
    await live(page);
  });

  test("explains rejected new tokens", async () => {
    await using visitor = await demo.visitor();
    const page = await live(await visitor.open(demo.url));
    // Signed with another key: the server rejects them.
    await page.route(MINT, async (route) => {
      const answer = await route.fetch();
      const { token, ...rest } = (await answer.json()) as { token: string };
      const [head, claims] = token.split(".");
      const forged = `${head}.${claims}.${"A".repeat(43)}`;
      await route.fulfill({ json: { ...rest, token: forged } });
    });
    await parked(page);
    expect(await pill(page).innerText()).toContain("Not allowed: invalid token");
  });
});
