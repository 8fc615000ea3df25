import { chromiumHere } from "@khala/test-support/browser/chromium";
import { type Demo, live, startDemo } from "@khala/test-support/browser/demo";
import { happen, say } from "@khala/test-support/browser/writes";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";

vi.setConfig({ testTimeout: 120_000 });

const WORKERS = "runtime.codex_worker_summaries";

describe.skipIf(!chromiumHere())("a page that loses its connection", () => {
  let demo: Demo;
  beforeAll(async () => {
    demo = await startDemo();
  });
  afterAll(() => demo?.[Symbol.asyncDispose]());

  test("shows since when it is offline, and the missed changes after reconnecting", async () => {
    await using visitor = await demo.visitor();
    await happen(demo, "traveller", "worker.registered", { name: "Ada" });
    const documents = await visitor.open(`${demo.url}/sync?topic=${WORKERS}&q=traveller`);
    const row = documents.getByRole("row", { name: /worker:traveller/ });
    await row.getByRole("gridcell", { name: "1", exact: true }).waitFor();
    // Opening a link creates no conversation.
    await say(demo, "travelling", "Hello?");
    const chat = await visitor.open(`${demo.url}/conversations?conv=travelling`);
    await chat.getByText("Hello?").first().waitFor();
    const pages = [documents, chat];
    for (const page of pages) await live(page);

    await visitor.browser.setOffline(true);
    for (const page of pages) await page.locator(".pill[data-state=offline]").waitFor();
    expect(await chat.locator(".pill").innerText()).toMatch(/Offline since \d\d:\d\d:\d\d/);
    await happen(demo, "traveller", "worker.status", { status: "busy" });
    await happen(demo, "traveller", "worker.status", { status: "idle" });
    await say(demo, "travelling", "Are you there?");
    // Loaded data stays readable.
    expect(await row.isVisible()).toBe(true);

    await visitor.browser.setOffline(false);
    for (const page of pages) await live(page);
    await row.getByRole("gridcell", { name: "3", exact: true }).waitFor();
    await chat.getByText("Are you there?").first().waitFor();
    await chat.locator(".message-assistant .message-text").last().waitFor();
    // Browsers log failed requests themselves.
    expect(visitor.problems.filter((problem) => !problem.includes("ERR_INTERNET_DISCONNECTED"))).toEqual([]);
  });

  test("keeps the other tabs live, without a gap, when the tab with the socket closes", async () => {
    await using visitor = await demo.visitor();
    const address = `${demo.url}/conversations?conv=shared`;
    await say(demo, "shared", "Hello?");
    const first = await live(await visitor.open(address));
    await first.getByText("Hello?").first().waitFor();
    const second = await live(await visitor.open(address));
    await say(demo, "shared", "/long 400");
    const answer = second.locator(".message-assistant .message-text").last();
    await answer.getByText(/\b5\b/).waitFor();
    await first.close();
    await answer.getByText(/\b400$/).waitFor({ timeout: 60_000 });
    expect(await answer.textContent()).toBe(Array.from({ length: 400 }, (_, i) => i + 1).join(" "));
    await live(second);
    await say(demo, "shared", "And now?");
    await second.getByText("And now?").first().waitFor();
    expect(visitor.problems).toEqual([]);
  });
});
