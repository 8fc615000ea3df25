import { seriousFindings } from "@khala/testing/browser/axe";
import { chromiumHere } from "@khala/testing/browser/chromium";
import { type Demo, live, overflow, signIn, startDemo, themeOf } from "@khala/testing/browser/demo";
import { eventually } from "@khala/testing/kit/eventually";
import { TOPICS, tokenMint } from "@khala/testing/kit/tokens";
import { testDatabase } from "@khala/testing/postgres/test_database";
import { startKhala } from "@khala/testing/processes/processes";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";

vi.setConfig({ testTimeout: 120_000 });

const PLANES = ["Sync", "Conversations", "Blackboard"];

describe.skipIf(!chromiumHere())("Home", () => {
  let demo: Demo;
  beforeAll(async () => {
    demo = await startDemo();
  });
  afterAll(() => demo?.[Symbol.asyncDispose]());

  test("a first visit is signed in, live, and sees three planes at work", async () => {
    await using visitor = await demo.visitor();
    const page = await live(await visitor.open(demo.url));
    for (const name of PLANES) await page.getByRole("region", { name, exact: true }).waitFor();
    // Whoever looks makes the demo go on: documents change before their eyes.
    await page.getByRole("list", { name: "Documents that changed last" }).getByRole("link").first().waitFor();
    expect(await seriousFindings(page)).toEqual([]);
    expect(visitor.problems).toEqual([]);
  });

  test("a message goes through all planes to an article, and its trace is one click away", async () => {
    await using visitor = await demo.visitor();
    const page = await live(await visitor.open(demo.url));
    await page.getByLabel("Message to the demo assistant").fill("Write a note about otters");
    await page.keyboard.press("Enter");
    for (const step of ["message", "conversation", "draft", "reviewer", "article"])
      await page.locator(`[data-step=${step}][data-state=ok]`).waitFor({ timeout: 60_000 });
    await page.getByText("“Otters” is on the blackboard.").waitFor();

    // The address has it all: whoever is sent the link sees the same.
    await page.reload();
    await page.locator("[data-step=article][data-state=ok]").waitFor();

    await page.getByRole("link", { name: "Trace" }).click();
    const steps = page.getByRole("list", { name: "Steps of the trace" });
    for (const agent of ["writer", "reviewer", "publisher"])
      await steps
        .getByRole("button", { name: new RegExp(`^process ${agent}`) })
        .first()
        .waitFor();
    expect(visitor.problems).toEqual([]);
  });

  test("every number is a link to what it counts", async () => {
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

  test.for([
    { colorScheme: "light", width: 1280 },
    { colorScheme: "dark", width: 1280 },
    { colorScheme: "light", width: 390 },
    { colorScheme: "dark", width: 390 },
  ] as const)("is readable by all: $colorScheme, $width wide", async ({ colorScheme, width }) => {
    await using visitor = await demo.visitor({ colorScheme, viewport: { width, height: 844 } });
    const page = await live(await visitor.open(demo.url));
    await page.getByRole("region", { name: "Sync", exact: true }).waitFor();
    expect(await themeOf(page)).toBe(colorScheme);
    expect(await seriousFindings(page)).toEqual([]);
    expect(await overflow(page)).toBeLessThanOrEqual(0);
  });

  test("a theme that was chosen is remembered", async () => {
    await using visitor = await demo.visitor({ colorScheme: "light" });
    const page = await live(await visitor.open(demo.url));
    await page.getByRole("button", { name: "Theme: as the system" }).click();
    await page.getByRole("button", { name: "Theme: light" }).click();
    await page.getByRole("button", { name: "Theme: dark" }).waitFor();
    await page.reload();
    await live(page);
    expect(await themeOf(page)).toBe("dark");

    // Before anything of the page itself has run: nothing is painted in the other theme first.
    await page.route("**/assets/*.js", (route) => route.abort());
    await page.reload();
    expect(await themeOf(page)).toBe("dark");
  });

  test("everything can be reached by keyboard alone", async () => {
    await using visitor = await demo.visitor();
    const page = await live(await visitor.open(demo.url));
    await page.keyboard.press("Tab");
    await page.keyboard.press("Enter");
    expect(await page.evaluate("document.activeElement?.id")).toBe("main");

    await page.keyboard.press("Control+k");
    await page.getByRole("combobox", { name: "Go to anything" }).waitFor();
    await page.keyboard.type("settings");
    await page.getByRole("option", { name: /settings/ }).waitFor();
    expect(await seriousFindings(page)).toEqual([]);
    await page.keyboard.press("Enter");
    await page.waitForURL(/\/operations\?tab=config/);
  });

  test("the connection is shown as it is: offline since when, and live again", async () => {
    await using visitor = await demo.visitor();
    const page = await live(await visitor.open(demo.url));
    await visitor.browser.setOffline(true);
    await page.locator(".pill[data-state=offline]").waitFor();
    expect(await page.locator(".pill").innerText()).toMatch(/Offline since \d\d:\d\d:\d\d/);
    await visitor.browser.setOffline(false);
    await live(page);
  });

  test("pausing freezes what is shown, and resuming catches up", async () => {
    await using visitor = await demo.visitor();
    const page = await live(await visitor.open(demo.url));
    const standing = page.locator(".standing");
    await standing.getByText(/^up /).waitFor();
    await page.getByRole("button", { name: "Pause" }).click();
    const frozen = await standing.innerText();
    // What comes meanwhile is another overview, which another page shows.
    const other = await live(await visitor.open(demo.url));
    await other.locator(".standing").getByText(/^up /).waitFor();
    expect(await standing.innerText()).toBe(frozen);
    await page.getByRole("button", { name: "Resume" }).click();
    await eventually("it goes on", async () => (await standing.innerText()) !== frozen);
  });

  test("a token without the scope is told which one it lacks", async () => {
    await using visitor = await demo.visitor();
    await signIn(visitor, await demo.token(["chat"], "guest"));
    const page = await visitor.open(demo.url);
    await page.getByRole("heading", { name: "Your token does not allow this" }).waitFor();
    expect(await seriousFindings(page)).toEqual([]);
    await page.getByRole("button", { name: "Use another token" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Use the development token" }).click();
    await page.getByRole("region", { name: "Sync", exact: true }).waitFor();
  });

  test("a production server asks for a token, and shows itself to who has one", async () => {
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
    await page.getByRole("alert").getByText("does not look like a token").waitFor();
    const scopes = [...TOPICS, "ops", "chat", "blackboard:read"];
    await page.getByRole("textbox").fill(await mint.mint("acme", "ada", { scopes }));
    await page.getByRole("button", { name: "Sign in" }).click();
    await live(page);
    await page.getByRole("region", { name: "Sync", exact: true }).waitFor();
  });
});
