import type { ConversationStateJson } from "@khala/contracts/conversation/v1";
import { seriousFindings } from "@khala/test-support/browser/axe";
import {
  chromiumHere,
  startChromium,
  type TestBrowser,
  type TestContext,
} from "@khala/test-support/browser/chromium";
import { type DashboardServer, startDashboard } from "@khala/test-support/browser/dashboard";
import { eventually } from "@khala/test-support/kit/eventually";
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
  /** Asking for a conversation that does not exist yet is answered with 404, which a browser reports as a problem. */
  const problemsOf = (context: TestContext) =>
    context.problems.filter((problem) => !/status of 404 .*\/chat\//.test(problem));
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
    await first.getByText("Stopped", { exact: true }).waitFor();
    await second.getByText("Stopped", { exact: true }).waitFor();
    expect(await answer(first).textContent()).toBe(await answer(second).textContent());
    expect([...problemsOf(here), ...problemsOf(there)]).toEqual([]);
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
    expect(problemsOf(context)).toEqual([]);
  });

  test("shows reasoning and tool calls on request", async () => {
    await using context = await browser.context();
    const page = await context.open(address("tools"));
    await say(page, "What is the weather in Bern?");
    await page.getByText("Tool: weather").click();
    await page.getByText('"Bern"').first().waitFor();
    await page.getByText("Reasoning", { exact: true }).click();
    await page.getByText(/words to read/).waitFor();
    expect(problemsOf(context)).toEqual([]);
  });

  test("asks for the approval that a run waits for, and goes on with it", async () => {
    await using context = await browser.context();
    const page = await context.open(address("pay"));
    await say(page, "/approve pay 5 euros");
    // Sockets that open while a run begins to wait are tested with the server.
    await eventually("the run to wait", async () => {
      const headers = { authorization: `Bearer ${await server.token()}` };
      const state = (await (
        await fetch(`${server.url}/chat/pay`, { headers })
      ).json()) as ConversationStateJson;
      return state.run?.status === "waiting";
    });
    await page.reload();
    await page.getByText("Waiting for an approval").waitFor();
    const tool = page.locator(".fold", { hasText: "Tool: approve" });
    await tool.getByText("waiting for approval").waitFor();
    await tool.getByText('"pay 5 euros"').waitFor();
    const list = page.getByRole("navigation", { name: "Conversations" });
    await list.getByRole("link", { name: /approve pay 5 euros.*waiting/ }).waitFor();
    expect(await seriousFindings(page)).toEqual([]);
    await tool.getByRole("button", { name: "Approve the tool approve" }).click();
    await tool.getByText("done", { exact: true }).waitFor();
    await tool.getByText("Tool: approve").click();
    await tool.getByText("Approved by dev").waitFor();
    await finished(page);
    expect(problemsOf(context)).toEqual([]);
  });

  test("says what to do when a run fails", async () => {
    await using context = await browser.context();
    const page = await context.open(address("broken"));
    await say(page, "/fail");
    const alert = page.getByRole("alert");
    await alert.getByText("The script was asked to fail. Send another message.").waitFor();
    await alert.getByText("engine_failed").waitFor();
    // Also for somebody who did not see it end, with the way to the exception.
    await using other = await browser.context();
    const later = await other.open(address("broken"));
    const list = later.getByRole("navigation", { name: "Conversations" });
    await list.getByText("The script was asked to fail. Send another message.").waitFor();
    await later.getByRole("alert").getByRole("link", { name: "Find the cause" }).click();
    await later.getByRole("complementary", { name: "Failed run" }).getByText("What the user saw").waitFor();
    expect(other.problems).toEqual([]);
    expect(problemsOf(context)).toEqual([]);
  });

  test("a link creates no conversation; the first message does", async () => {
    await using context = await browser.context();
    const page = await context.open(address("only-a-link"));
    await page.getByRole("heading", { name: "No conversation with this id" }).waitFor();
    const exists = async () =>
      (
        await fetch(`${server.url}/chat/only-a-link`, {
          headers: { authorization: `Bearer ${await server.token()}` },
        })
      ).status;
    expect(await exists()).toBe(404);
    await say(page, "Now it begins");
    await page.getByText("You said: Now it begins").waitFor();
    expect(await exists()).toBe(200);
    expect(problemsOf(context)).toEqual([]);
  });

  test("finds conversations by words and by status", async () => {
    await server.post("/chat", { conv_id: "find-ok", message: "Plan a picnic" });
    await server.post("/chat", { conv_id: "find-bad", message: "/fail" });
    await using context = await browser.context();
    const page = await context.open(`${server.url}/conversations`);
    const list = page.getByRole("navigation", { name: "Conversations" });
    await list.getByText("Plan a picnic").waitFor();
    await list.getByRole("combobox", { name: "Status" }).selectOption("failed");
    await list.getByText("Plan a picnic").waitFor({ state: "detached" });
    await list.getByText("/fail").first().waitFor();
    await list.getByRole("combobox", { name: "Status" }).selectOption("any");
    await list.getByRole("searchbox", { name: "Search conversations" }).fill("picnic");
    await list.getByText("/fail").first().waitFor({ state: "detached" });
    await list.getByText("Plan a picnic").click();
    await page.getByText("You said: Plan a picnic").waitFor();
    expect(context.problems).toEqual([]);
  });

  test("shows Markdown with code, and never as HTML", async () => {
    await server.post("/chat", { conv_id: "marked", message: "Hello" });
    const text = [
      "Some **bold** words, <img src=x onerror=alert(1)> and a [site](https://example.com).",
      "A [trap](javascript:alert(1)).",
      "```ts\nconst one = 1;\n```",
    ].join("\n\n");
    await using context = await browser.context();
    const page = await context.open(address("marked"));
    await page.getByText("You said: Hello").waitFor();
    await finished(page);
    await server.post("/chat/marked/events", {
      events: [{ message: { message_id: "m1", role: "assistant", text } }],
    });
    await page.locator("strong", { hasText: "bold" }).waitFor();
    const message = page.locator(".message-assistant").last();
    expect(await message.getByRole("region", { name: "Code in ts" }).textContent()).toBe("const one = 1;");
    const link = message.getByRole("link");
    expect(await link.count()).toBe(1);
    expect(await link.getAttribute("rel")).toContain("noopener");
    expect(await message.locator("img").count()).toBe(0);
    await message.getByText("<img src=x onerror=alert(1)>").waitFor();
    expect(context.problems).toEqual([]);
  });

  test("shows images and other files of a message, and the sources of an answer", async () => {
    const pixel =
      "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
    const parts = [
      { text: "Look" },
      { file: { url: pixel, media_type: "image/png", name: "dot.png" } },
      { file: { url: "data:text/plain;base64,SGVsbG8=", media_type: "text/plain", name: "hello.txt" } },
    ];
    await server.post("/chat", { conv_id: "files", parts });
    await using context = await browser.context();
    const page = await context.open(address("files"));
    const image = page.getByRole("img", { name: "dot.png" });
    await image.waitFor();
    await page.waitForFunction("document.querySelector('.message-image img')?.naturalWidth === 1");
    const saved = page.waitForEvent("download");
    await page.getByRole("button", { name: "Save hello.txt" }).click();
    expect((await saved).suggestedFilename()).toBe("hello.txt");
    await finished(page);
    await server.post("/chat/files/events", {
      events: [
        { message: { message_id: "m2", role: "assistant", text: "As written there." } },
        {
          source_added: {
            message_id: "m2",
            source: { source_id: "s", url: "https://example.com/a", title: "A page" },
          },
        },
      ],
    });
    await page.getByRole("link", { name: "A page" }).waitFor();
    expect(context.problems).toEqual([]);
  });

  test("shows the participants, and who is present", async () => {
    await server.post("/chat", { conv_id: "shared", message: "Hello all" });
    const put = await fetch(`${server.url}/chat/shared/participants/bob`, {
      method: "PUT",
      headers: { "content-type": "application/json", authorization: `Bearer ${await server.token()}` },
      body: JSON.stringify({ role: "member" }),
    });
    expect(put.status).toBe(200);
    await using here = await browser.context();
    await using there = await browser.context();
    const page = await here.open(address("shared"));
    const people = page.getByRole("list", { name: "People" });
    await people.getByText("bob").waitFor();
    await people.getByText("member").waitFor();
    await there.open(address("shared"));
    await people.getByText("owner, 2 devices").waitFor();
    expect([...here.problems, ...there.problems]).toEqual([]);
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
    expect(problemsOf(context)).toEqual([]);
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
    expect([...problemsOf(context), ...problemsOf(other)]).toEqual([]);
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
    expect(problemsOf(context)).toEqual([]);
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
    await page.getByRole("heading", { name: "No conversation with this id" }).waitFor();
    expect(await seriousFindings(page), "none yet").toEqual([]);
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
    expect(problemsOf(context)).toEqual([]);
  });
});
