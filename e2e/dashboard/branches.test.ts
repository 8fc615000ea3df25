import { chromiumHere, startChromium, type TestBrowser } from "@khala/test-support/browser/chromium";
import { type DashboardServer, startDashboard } from "@khala/test-support/browser/dashboard";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";

vi.setConfig({ testTimeout: 180_000, hookTimeout: 180_000 });

describe.skipIf(!chromiumHere())("branches on the Conversations page", () => {
  let browser: TestBrowser;
  let server: DashboardServer;
  beforeAll(async () => {
    [browser, server] = await Promise.all([startChromium(), startDashboard()]);
  });
  afterAll(async () => {
    await browser?.[Symbol.asyncDispose]();
    await server?.[Symbol.asyncDispose]();
  });

  test("regenerates a response, edits a question, and shows each version again, on both devices", async () => {
    await using here = await browser.context();
    await using there = await browser.context();
    const address = `${server.url}/conversations?conv=branches`;
    const first = await here.open(address);
    const second = await there.open(address);
    await first.getByRole("textbox", { name: "Message" }).fill("/long 3");
    await first.keyboard.press("Enter");
    await second.locator(".message-assistant").getByText("1 2 3").waitFor();
    await second.getByRole("button", { name: "Regenerate" }).click();
    const answer = (page: typeof first) => page.locator(".message-assistant");
    for (const page of [first, second]) await answer(page).getByText("2 / 2").waitFor();
    await first.getByRole("button", { name: "Previous version" }).click();
    for (const page of [first, second]) await answer(page).getByText("1 / 2").waitFor();

    await first.getByRole("button", { name: "Edit" }).click();
    await first.getByRole("textbox", { name: "New version" }).fill("/long 4");
    await first.getByRole("button", { name: "Save" }).click();
    for (const page of [first, second]) {
      await page.locator(".message-user").getByText("2 / 2").waitFor();
      await answer(page).getByText("1 2 3 4").waitFor();
      expect(await answer(page).count()).toBe(1);
    }
    await second.reload();
    await second.locator(".message-user").getByText("2 / 2").waitFor();
    await second.locator(".message-user").getByRole("button", { name: "Previous version" }).click();
    for (const page of [first, second]) await answer(page).getByText("2 / 2").waitFor();
    // Asking for a conversation that does not exist yet is answered with 404, which browsers report.
    const problems = [...here.problems, ...there.problems];
    expect(problems.filter((problem) => !/status of 404 .*\/chat\//.test(problem))).toEqual([]);
  });
});
