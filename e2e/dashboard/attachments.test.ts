import { seriousFindings } from "@khala/test-support/browser/axe";
import {
  chromiumHere,
  startChromium,
  type TestBrowser,
  type TestContext,
} from "@khala/test-support/browser/chromium";
import { type DashboardServer, startDashboard } from "@khala/test-support/browser/dashboard";
import { overflow } from "@khala/test-support/browser/demo";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";

vi.setConfig({ testTimeout: 120_000, hookTimeout: 120_000 });

const PIXEL =
  "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
const DOT = { name: "dot.png", mimeType: "image/png", buffer: Buffer.from(PIXEL, "base64") };
const PHONE = { width: 390, height: 844 };
const MAX_BYTES = 25 << 20;

const LONG = `${"a-name-that-is-wider-than-a-phone-".repeat(4)}.txt`;
/** By how many pixels the messages are wider than their area. */
const WIDER =
  "(() => { const area = document.querySelector('.messages-scroller'); return area.scrollWidth - area.clientWidth; })()";

/** Puts a file on the page, as a paste or a drop does. */
const given = (event: "paste" | "drop", name: string) => `(() => {
  const data = new DataTransfer();
  data.items.add(new File(["words"], ${JSON.stringify(name)}, { type: "text/plain" }));
  const on = document.querySelector(".composer textarea");
  on.dispatchEvent(${
    event === "paste"
      ? `new ClipboardEvent("paste", { clipboardData: data, bubbles: true, cancelable: true })`
      : `new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true })`
  });
})()`;

describe.skipIf(!chromiumHere())("the composer", () => {
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
  /** Asking for a conversation that does not exist yet is answered with 404. */
  const problemsOf = (context: TestContext) =>
    context.problems.filter((problem) => !/status of 404 .*\/chat\//.test(problem));

  test("sends files that were chosen, pasted and dropped, and the message shows them", async () => {
    await using context = await browser.context({ viewport: PHONE, hasTouch: true, isMobile: true });
    const page = await context.open(address("attached"));
    const chooser = page.waitForEvent("filechooser");
    await page.getByRole("button", { name: "Attach files" }).tap();
    await (await chooser).setFiles(DOT);
    const list = page.getByRole("list", { name: "Attached files" });
    await list.getByText("dot.png").waitFor();
    await page.evaluate(given("paste", LONG));
    await page.evaluate(given("drop", "dropped.txt"));
    await page.evaluate(given("drop", "removed.txt"));
    await page.getByRole("button", { name: "Remove removed.txt" }).tap();
    expect(await list.getByRole("listitem").count()).toBe(3);
    expect(await seriousFindings(page)).toEqual([]);
    expect(await overflow(page)).toBeLessThanOrEqual(0);

    await page.getByRole("textbox", { name: "Message" }).fill("Look at these");
    await page.getByRole("button", { name: "Send" }).tap();
    await page.getByText("You said: Look at these").waitFor();
    await page.getByRole("img", { name: "dot.png" }).waitFor();
    await page.waitForFunction("document.querySelector('.message-image img')?.naturalWidth === 1");
    await page.getByRole("button", { name: `Save ${LONG}` }).waitFor();
    await page.getByRole("button", { name: "Save dropped.txt" }).waitFor();
    await list.waitFor({ state: "detached" });
    // The messages scroll by themselves: the page would not be wider.
    expect(await page.evaluate<number>(WIDER)).toBeLessThanOrEqual(0);
    expect(problemsOf(context)).toEqual([]);
  });

  test("keeps the message when an upload fails, and sends it again", async () => {
    await using context = await browser.context();
    const page = await context.open(address("retried"));
    const attached = page.getByLabel("Files to attach");
    await attached.setInputFiles([DOT, { ...DOT, name: "second.png" }]);
    await page.route(/\/files\?.*second/, (route) => {
      const error = { code: "limit_exceeded", message: "The storage of this org is full." };
      return route.fulfill({ status: 429, contentType: "application/json", body: JSON.stringify({ error }) });
    });
    const sent: string[] = [];
    page.on("request", (request) => {
      if (request.method() === "POST" && request.url().includes("/files?")) sent.push(request.url());
    });
    const box = page.getByRole("textbox", { name: "Message" });
    await box.fill("Twice");
    await box.press("Enter");
    const list = page.getByRole("list", { name: "Attached files" });
    await list.getByRole("alert").getByText("The storage of this org is full.").waitFor();
    expect(await box.inputValue()).toBe("Twice");

    await page.unrouteAll();
    await page.getByRole("button", { name: "Send" }).click();
    await page.getByRole("img", { name: "second.png" }).waitFor();
    await page.getByText("You said: Twice").waitFor();
    expect(sent.filter((url) => url.includes("dot.png")).length).toBe(1);
  });

  test("refuses a file that is too large before it is uploaded", async () => {
    await using context = await browser.context();
    const page = await context.open(address("too-large"));
    await page.getByRole("textbox", { name: "Message" }).waitFor();
    await page.evaluate(`(() => {
      const data = new DataTransfer();
      data.items.add(new File([new Uint8Array(${MAX_BYTES + 1})], "film.mov", { type: "video/quicktime" }));
      document.querySelector(".composer").dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true }));
    })()`);
    const list = page.getByRole("list", { name: "Attached files" });
    await list.getByRole("alert").getByText("Choose a file of at most 25 MB").waitFor();
    await page.getByRole("textbox", { name: "Message" }).fill("With a film");
    expect(await page.getByRole("button", { name: "Send" }).isDisabled()).toBe(true);
    await page.getByRole("button", { name: "Remove film.mov" }).click();
    await page.getByRole("button", { name: "Send" }).click();
    await page.getByText("You said: With a film").waitFor();
    expect(problemsOf(context)).toEqual([]);
  });
});
