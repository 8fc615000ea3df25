import { seriousFindings } from "@khala/test-support/browser/axe";
import { chromiumHere, startChromium, type TestBrowser } from "@khala/test-support/browser/chromium";
import { type DashboardServer, startDashboard } from "@khala/test-support/browser/dashboard";
import type { Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";

const WORDS = 300;
const COUNTED = Array.from({ length: WORDS }, (_, i) => i + 1).join(" ");

vi.setConfig({ testTimeout: 180_000, hookTimeout: 180_000 });

describe.skipIf(!chromiumHere())("the Conversations page", () => {
  let browser: TestBrowser;
  let server: DashboardServer;
  beforeAll(async () => {
    [browser, server] = await Promise.all([startChromium(), startDashboard()]);
  });
  afterAll(async () => {
    await browser?.[Symbol.asyncDispose]();
    await server?.[Symbol.asyncDispose]();
  });

  const address = (conv: string) => `${server.url}/conversations?conv=${conv}`;
  const say = async (page: Page, text: string) => {
    await page.getByRole("textbox", { name: "Message" }).fill(text);
    await page.keyboard.press("Enter");
  };
  const answer = (page: Page) => page.locator(".message-assistant .message-text").last();
  const finished = (page: Page) => page.getByRole("button", { name: "Stop" }).waitFor({ state: "detached" });

  test("streams to two devices, and either can stop the run", async () => {
    await using here = await browser.context();
    await using there = await browser.context();
    const first = await here.open(address("both"));
    const second = await there.open(address("both"));
    await say(first, "/long 5000");
    await second.getByText("/long 5000").first().waitFor();
    await answer(second).waitFor();
    await second.getByRole("button", { name: "Stop" }).click();
    await first.getByText("Stopped").waitFor();
    await second.getByText("Stopped").waitFor();
    expect(await answer(first).textContent()).toBe(await answer(second).textContent());
    expect([...here.problems, ...there.problems]).toEqual([]);
  });

  test("loses and duplicates no token when reloaded during a response", async () => {
    await using context = await browser.context();
    const page = await context.open(address("reloaded"));
    await say(page, `/long ${WORDS}`);
    await answer(page)
      .getByText(/\b20\b/)
      .waitFor();
    await page.reload();
    await answer(page).waitFor();
    const afterReload = (await answer(page).textContent()) ?? "";
    expect(COUNTED.startsWith(afterReload), afterReload).toBe(true);
    await answer(page)
      .getByText(new RegExp(`\\b${WORDS}$`))
      .waitFor();
    expect(await answer(page).textContent()).toBe(COUNTED);
    expect(context.problems).toEqual([]);
  });

  test("shows reasoning and tool calls on request", async () => {
    await using context = await browser.context();
    const page = await context.open(address("tools"));
    await say(page, "What is the weather in Bern?");
    await page.getByText("Tool: weather").click();
    await page.getByText('"Bern"').first().waitFor();
    await page.getByText("Reasoning", { exact: true }).click();
    await page.getByText(/words to read/).waitFor();
    expect(context.problems).toEqual([]);
  });

  test("says what to do when a run fails", async () => {
    await using context = await browser.context();
    const page = await context.open(address("broken"));
    await say(page, "/fail");
    await page.getByText("The response failed. Send the message again.").waitFor();
    await page.getByRole("alert").getByText("engine_failed").waitFor();
    expect(context.problems).toEqual([]);
  });

  test("returns a rejected message to the box, and says what to do", async () => {
    await using context = await browser.context();
    const page = await context.open(address("busy"));
    await say(page, "/long 5000");
    await page.getByRole("button", { name: "Stop" }).waitFor();
    await page.getByRole("combobox", { name: "During a run" }).selectOption("reject");
    await say(page, "And this?");
    await page.getByText(/Wait, stop the run, or send with another policy/).waitFor();
    expect(await page.getByRole("textbox", { name: "Message" }).inputValue()).toBe("And this?");
    await page.getByRole("combobox", { name: "During a run" }).selectOption("interrupt");
    await page.getByRole("button", { name: "Send" }).click();
    await page.getByText("You said: And this?").waitFor();
    await finished(page);
  });

  test("replays the log event by event, by keyboard", async () => {
    await using context = await browser.context();
    const page = await context.open(address("replayed"));
    await say(page, "/long 40");
    await answer(page).getByText(/\b40$/).waitFor();
    await finished(page);
    await page.getByRole("button", { name: "Replay", exact: true }).click();
    const slider = page.getByRole("slider", { name: "Position in the log" });
    await slider.focus();
    await page.keyboard.press("Home");
    await page.getByRole("heading", { name: "Before the first event" }).waitFor();
    for (const _ of Array.from({ length: 3 })) await page.keyboard.press("ArrowRight");
    await answer(page).waitFor();
    const part = (await answer(page).textContent()) ?? "";
    expect(part.length).toBeGreaterThan(0);
    expect(COUNTED.startsWith(part), part).toBe(true);
    expect(new URL(page.url()).searchParams.get("replay")).toBe("3");
    await page.getByRole("button", { name: "Play", exact: true }).click();
    await answer(page).getByText(/\b40$/).waitFor();
    await page.getByRole("button", { name: "Back to live" }).click();
    await page.getByRole("textbox", { name: "Message" }).waitFor();
    expect(context.problems).toEqual([]);
  });

  test("links a second device to the same conversation", async () => {
    await using context = await browser.context();
    const page = await context.open(address("linked"));
    await say(page, "Hello there");
    await page.getByText("You said: Hello there").waitFor();
    await page.getByRole("button", { name: "Second device" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByRole("img", { name: `QR code of ${address("linked")}` }).waitFor();
    await using other = await browser.context();
    const second = await other.open((await dialog.getByRole("link").getAttribute("href")) ?? "");
    await second.getByText("You said: Hello there").waitFor();
    expect([...context.problems, ...other.problems]).toEqual([]);
  });

  test("starts, lists and deletes a conversation by keyboard alone", async () => {
    await using context = await browser.context();
    const page = await context.open(`${server.url}/conversations`);
    await page.getByRole("button", { name: "New conversation" }).focus();
    await page.keyboard.press("Enter");
    await page.getByRole("textbox", { name: "Message" }).focus();
    await page.keyboard.type("Remember the tides");
    await page.keyboard.press("Enter");
    const entry = page.getByRole("navigation", { name: "Conversations" }).getByText("Remember the tides");
    await entry.waitFor();
    await page.getByText("You said: Remember the tides").waitFor();
    await page.getByRole("button", { name: "Delete conversation" }).focus();
    await page.keyboard.press("Enter");
    await page.getByRole("dialog").getByRole("button", { name: "Delete" }).focus();
    await page.keyboard.press("Enter");
    await entry.waitFor({ state: "detached" });
    expect(context.problems).toEqual([]);
  });

  test.each([
    ["light", 1280],
    ["dark", 390],
  ] as const)("is accessible, %s and %i pixels wide", async (colorScheme, width) => {
    const conv = `axe-${colorScheme}`;
    await using context = await browser.context({
      colorScheme,
      reducedMotion: "reduce",
      viewport: { width, height: 800 },
    });
    const page = await context.open(address(conv));
    await page.getByRole("heading", { name: "Send a message" }).waitFor();
    expect(await seriousFindings(page), "a new one").toEqual([]);
    await say(page, "The weather in Bern?");
    await page.getByText("You said: The weather in Bern?").waitFor();
    await finished(page);
    await page.getByText("Tool: weather").click();
    expect(await seriousFindings(page), "the chat").toEqual([]);
    await page.getByRole("button", { name: "Replay", exact: true }).click();
    await page.getByRole("slider").waitFor();
    expect(await seriousFindings(page), "the replay").toEqual([]);
    await page.getByRole("button", { name: "Second device" }).click();
    await page.getByRole("dialog").waitFor();
    expect(await seriousFindings(page), "the link").toEqual([]);
    expect(context.problems).toEqual([]);
  });
});
