import { seriousFindings } from "@khala/test-support/browser/axe";
import { chromiumHere } from "@khala/test-support/browser/chromium";
import { type Demo, live, overflow, signIn, startDemo, themeOf } from "@khala/test-support/browser/demo";
import { eventually } from "@khala/test-support/kit/eventually";
import { TOPICS, tokenMint } from "@khala/test-support/kit/tokens";
import { testDatabase } from "@khala/test-support/postgres/test_database";
import { startKhala } from "@khala/test-support/processes/processes";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";

vi.setConfig({ testTimeout: 120_000 });

const PLANES = ["Sync", "Conversations", "Blackboard"];

describe.skipIf(!chromiumHere())("the Home page", () => {
  let demo: Demo;
  beforeAll(async () => {
    demo = await startDemo();
  });
  afterAll(() => demo?.[Symbol.asyncDispose]());

  test("signs a first visitor in, and shows three live planes", async () => {
    await using visitor = await demo.visitor();
    const page = await live(await visitor.open(demo.url));
    for (const name of PLANES) await page.getByRole("region", { name, exact: true }).waitFor();
    // The demo runs while somebody watches.
    await page.getByRole("list", { name: "Recently changed documents" }).getByRole("link").first().waitFor();
    expect(await seriousFindings(page)).toEqual([]);
    expect(visitor.problems).toEqual([]);
  });

  test("follows a message through all planes to an article and its trace", async () => {
    await using visitor = await demo.visitor();
    const page = await live(await visitor.open(demo.url));
    await page.getByLabel("Message to the demo assistant").fill("Write a note about otters");
    await page.keyboard.press("Enter");
    for (const step of ["message", "conversation", "draft", "reviewer", "article"])
      await page.locator(`[data-step=${step}][data-state=ok]`).waitFor({ timeout: 60_000 });
    await page.getByText("“Otters” is on the blackboard.").waitFor();

    // The address has the whole state.
    await page.reload();
    await page.locator("[data-step=article][data-state=ok]").waitFor();

    await page.getByRole("link", { name: "Trace" }).click();
    const steps = page.getByRole("list", { name: "Spans of the trace" });
    for (const agent of ["writer", "reviewer", "publisher"])
      await steps
        .getByRole("button", { name: new RegExp(`^process ${agent}`) })
        .first()
        .waitFor();
    expect(visitor.problems).toEqual([]);
  });

  test("links every number to what it counts", async () => {
    await using visitor = await demo.visitor();
    const page = await live(await visitor.open(demo.url));
    const plane = page.getByRole("region", { name: "Blackboard", exact: true });
    await plane.getByRole("link", { name: /dead letter/ }).click();
    await page.waitForURL(/\/blackboard\?tab=dead/);
    await page.goBack();
    await page
      .getByRole("list", { name: "Server" })
      .getByRole("link", { name: /sockets?$/ })
      .click();
    await page.waitForURL(/\/operations\?tab=sockets/);
    await page.getByRole("grid", { name: "Open sockets" }).getByRole("row").nth(1).waitFor();
  });

  // Wider ones are among those of pages.test.ts.
  test.for([
    { colorScheme: "light", width: 390 },
    { colorScheme: "dark", width: 390 },
  ] as const)("is accessible: $colorScheme, $width wide", async ({ colorScheme, width }) => {
    await using visitor = await demo.visitor({ colorScheme, viewport: { width, height: 844 } });
    const page = await live(await visitor.open(demo.url));
    await page.getByRole("region", { name: "Sync", exact: true }).waitFor();
    expect(await themeOf(page)).toBe(colorScheme);
    expect(await seriousFindings(page)).toEqual([]);
    expect(await overflow(page)).toBeLessThanOrEqual(0);
  });

  test("remembers the chosen theme", async () => {
    await using visitor = await demo.visitor({ colorScheme: "light" });
    const page = await live(await visitor.open(demo.url));
    await page.getByRole("button", { name: "Theme: system" }).click();
    await page.getByRole("button", { name: "Theme: light" }).click();
    await page.getByRole("button", { name: "Theme: dark" }).waitFor();
    await page.reload();
    await live(page);
    expect(await themeOf(page)).toBe("dark");

    // It is applied before the page's own scripts run, so that the other theme does not flash.
    await page.route("**/assets/*.js", (route) => route.abort());
    await page.reload();
    expect(await themeOf(page)).toBe("dark");
  });

  test("can be used by keyboard alone", async () => {
    await using visitor = await demo.visitor();
    const page = await live(await visitor.open(demo.url));
    await page.keyboard.press("Tab");
    await page.keyboard.press("Enter");
    expect(await page.evaluate("document.activeElement?.id")).toBe("main");

    await page.keyboard.press("Control+k");
    await page.getByRole("combobox", { name: "Search" }).waitFor();
    await page.keyboard.type("settings");
    await page.getByRole("option", { name: /settings/ }).waitFor();
    expect(await seriousFindings(page)).toEqual([]);
    await page.keyboard.press("Enter");
    await page.waitForURL(/\/operations\?tab=config/);
  });

  test("shows since when it is offline, and when it is live again", async () => {
    await using visitor = await demo.visitor();
    const page = await live(await visitor.open(demo.url));
    await visitor.browser.setOffline(true);
    await page.locator(".pill[data-state=offline]").waitFor();
    expect(await page.locator(".pill").innerText()).toMatch(/Offline since \d\d:\d\d:\d\d/);
    await visitor.browser.setOffline(false);
    await live(page);
  });

  test("pausing freezes the view, and resuming catches up", async () => {
    await using visitor = await demo.visitor();
    const page = await live(await visitor.open(demo.url));
    const other = await live(await visitor.open(demo.url));
    const status = page.locator(".server-status");
    await status.getByText(/^up /).waitFor();
    await page.getByRole("button", { name: "Pause" }).click();
    // The button and the figures change in the same render: from here on the view is frozen.
    const resume = page.getByRole("button", { name: "Resume" });
    await resume.waitFor();
    const frozen = await status.innerText();
    await eventually("another page shows a later overview", async () => {
      const text = await other.locator(".server-status").innerText();
      return text.includes("up ") && text !== frozen;
    });
    expect(await status.innerText()).toBe(frozen);
    await resume.click();
    await eventually("it catches up", async () => (await status.innerText()) !== frozen);
  });

  test("names the scope that a token lacks", async () => {
    await using visitor = await demo.visitor();
    await signIn(visitor, await demo.token(["chat"], "guest"));
    const page = await visitor.open(demo.url);
    await page.getByRole("heading", { name: "Your token lacks a scope" }).waitFor();
    expect(await seriousFindings(page)).toEqual([]);
    await page.getByRole("button", { name: "Use another token" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Use the development token" }).click();
    await page.getByRole("region", { name: "Sync", exact: true }).waitFor();
  });

  test("asks for a token in production", async () => {
    const mint = tokenMint();
    await using database = await testDatabase();
    const env = { DATABASE_URL: database.url, KHALA_AUTH_SECRETS: mint.secrets };
    await using khala = await startKhala({ command: "serve", env });
    await using visitor = await demo.visitor();
    const page = await visitor.open(khala.url);
    await page.getByRole("heading", { name: "Sign in with a token" }).waitFor();
    expect(await seriousFindings(page)).toEqual([]);
    await page.getByRole("textbox").fill("open sesame");
    await page.getByRole("button", { name: "Sign in" }).click();
    await page.getByRole("alert").getByText("This is not a token").waitFor();
    const scopes = [...TOPICS, "ops", "platform", "chat", "blackboard:read"];
    await page.getByRole("textbox").fill(await mint.mint("acme", "ada", { scopes }));
    await page.getByRole("button", { name: "Sign in" }).click();
    await live(page);
    await page.getByRole("region", { name: "Sync", exact: true }).waitFor();
  });
});
