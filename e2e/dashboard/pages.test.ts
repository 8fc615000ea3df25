import { seriousFindings } from "@khala/test-support/browser/axe";
import { chromiumHere } from "@khala/test-support/browser/chromium";
import { type Demo, live, overflow, startDemo, themeOf } from "@khala/test-support/browser/demo";
import { focused, unseenFocus } from "@khala/test-support/browser/focus";
import { eventually } from "@khala/test-support/kit/eventually";
import type { Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";

vi.setConfig({ testTimeout: 180_000 });

const PAGES = {
  Home: "/",
  Sync: "/sync",
  Conversations: "/conversations",
  Blackboard: "/blackboard",
  Operations: "/operations",
};
const PHONE = { width: 390, height: 844 };
/** Every view that an address leads to. */
const VIEWS = [
  "/",
  "/sync",
  "/sync?topic=runtime.run_summaries",
  "/sync?tab=clients",
  "/sync?tab=parity",
  "/conversations",
  "/conversations?conv=phone",
  "/blackboard",
  "/blackboard?tab=timeline",
  "/blackboard?tab=agents",
  "/blackboard?tab=dead",
  "/blackboard?tab=approvals",
  "/blackboard?tab=lag",
  "/operations?tab=load",
  "/operations?tab=sockets",
  "/operations?tab=closes",
  "/operations?tab=errors",
  "/operations?tab=runs",
  "/operations?tab=traces",
  "/operations?tab=audit",
  "/operations?tab=quotas",
  "/operations?tab=config",
  "/docs",
  "/docs?page=CONFIGURATION.md",
];
/** What a finger has to hit. Links within a text, and ids and bars with an invisible rim, are not among them. */
const TARGETS =
  ".button, .tab, .select select, .filter, .table-row-selectable, .artifact-link, .fold > summary, .recent-row, .docs-list summary";
/** The targets that are drawn and are lower than a finger is broad. */
const TOO_LOW = `[...document.querySelectorAll(${JSON.stringify(TARGETS)})]
  .filter((target) => { const { height } = target.getBoundingClientRect(); return height > 0 && height < 43.5; })
  .map((target) => target.className + ": " + target.textContent)`;

/** Whether each node of the flow is inside of its frame. */
const FLOW_FITS = `(() => {
  const frame = document.querySelector(".flow").getBoundingClientRect();
  const nodes = [...document.querySelectorAll(".react-flow__node")].map((node) => node.getBoundingClientRect());
  return nodes.length > 5 && nodes.every(({ left, right }) => left >= frame.left && right <= frame.right);
})()`;

/** Waits until the page has loaded. */
async function settled(page: Page): Promise<void> {
  await live(page);
  const loading = page.locator("main .notice-loading");
  await eventually("the page has loaded", async () => (await loading.count()) === 0);
}

describe.skipIf(!chromiumHere())("the pages", () => {
  let demo: Demo;
  beforeAll(async () => {
    demo = await startDemo();
  });
  afterAll(() => demo?.[Symbol.asyncDispose]());

  test("fit a phone without scrolling sideways, and the bar at the bottom switches between them", async () => {
    await using visitor = await demo.visitor({ viewport: PHONE, hasTouch: true, isMobile: true });
    const page = await live(await visitor.open(demo.url));
    const bar = page.getByRole("navigation", { name: "Main" });
    for (const path of Object.values(PAGES)) {
      await bar.locator(`a[href="${path}"]`).tap();
      await page.waitForURL((url) => url.pathname === path);
      const box = await bar.boundingBox();
      expect(Math.round(box!.y + box!.height), path).toBe(PHONE.height);
    }
    for (const view of VIEWS) {
      await page.goto(demo.url + view);
      await settled(page);
      expect(await overflow(page), view).toBeLessThanOrEqual(0);
      expect(await page.evaluate<string[]>(TOO_LOW), view).toEqual([]);
    }
    // There is no conversation "phone": asking for it is answered with 404, which the browser reports.
    const problems = visitor.problems.filter((problem) => !/status of 404 .*\/chat\/phone/.test(problem));
    expect(problems).toEqual([]);
  });

  test("show the whole flow of the demo on a laptop", async () => {
    await using visitor = await demo.visitor({ viewport: { width: 1280, height: 800 } });
    const page = await live(await visitor.open(`${demo.url}/blackboard`));
    await page.locator('[data-id="agent:publisher"]').waitFor();
    await eventually("every node is in the frame", () => page.evaluate<boolean>(FLOW_FITS));
    expect(visitor.problems).toEqual([]);
  });

  test("can be reached by keyboard, with a visible focus", async () => {
    await using visitor = await demo.visitor();
    const page = await live(await visitor.open(demo.url));
    for (const [name, path] of Object.entries(PAGES)) {
      await tabTo(page, (label) => label === name);
      await page.keyboard.press("Enter");
      await page.waitForURL((url) => url.pathname === path);
      await settled(page);
      expect(await unseenFocus(page), name).toEqual([]);
    }
    expect(visitor.problems).toEqual([]);
  });

  test("return the focus after ⌘K, a row and a dialog were opened by keyboard", async () => {
    await using visitor = await demo.visitor();
    const page = await live(await visitor.open(`${demo.url}/operations?tab=config`));
    await settled(page);
    await page.getByRole("grid", { name: "Settings in effect" }).getByText("KHALA_PORT").waitFor();

    await tabTo(page, (label) => label === "Token");
    await page.keyboard.press("Enter");
    await page.getByRole("dialog", { name: "Use another token" }).waitFor();
    await page.keyboard.press("Escape");
    await page.getByRole("dialog").waitFor({ state: "detached" });
    await eventually("the focus returned", async () => (await focused(page)) === "Token");

    await page.keyboard.press("ControlOrMeta+k");
    await page.getByRole("combobox", { name: "Search" }).waitFor();
    await page.keyboard.press("Escape");
    await page.getByRole("combobox", { name: "Search" }).waitFor({ state: "detached" });
    await eventually("the focus returned", async () => (await focused(page)) === "Token");

    await tabTo(page, (label) => label === "Settings in effect");
    await page.keyboard.press("ArrowDown");
    await page.keyboard.press("Enter");
    const panel = page.getByRole("complementary");
    await panel.waitFor();
    await tabTo(page, (label) => label === "Close details");
    await page.keyboard.press("Escape");
    await panel.waitFor({ state: "detached" });
    await eventually("the focus returned", async () => (await focused(page)) === "Settings in effect");
    expect(visitor.problems).toEqual([]);
  });

  test("follow the system from light to dark, and are accessible in both", async () => {
    await using visitor = await demo.visitor({ colorScheme: "light", reducedMotion: "reduce" });
    const page = await live(await visitor.open(demo.url));
    for (const path of Object.values(PAGES)) {
      await page.goto(demo.url + path);
      await settled(page);
      for (const colorScheme of ["dark", "light"] as const) {
        await page.emulateMedia({ colorScheme });
        await eventually(`it is ${colorScheme}`, async () => (await themeOf(page)) === colorScheme);
        expect(await seriousFindings(page), `${path} ${colorScheme}`).toEqual([]);
        expect(await overflow(page), `${path} ${colorScheme}`).toBeLessThanOrEqual(0);
      }
    }
    expect(visitor.problems).toEqual([]);
  });
});

/** Presses Tab until this element has the focus. */
async function tabTo(page: Page, isThis: (label: string) => boolean): Promise<void> {
  const seen: string[] = [];
  for (let presses = 0; presses < 150; presses++) {
    await page.keyboard.press("Tab");
    const label = await focused(page);
    if (isThis(label)) return;
    seen.push(label);
  }
  throw new Error(`Tab did not reach it: ${seen.join(", ")}`);
}
