import { chromiumHere, startChromium } from "@khala/test-support/browser/chromium";
import { startDashboard } from "@khala/test-support/browser/dashboard";
import { live } from "@khala/test-support/browser/demo";
import { expect, test } from "vitest";
import app from "../../packages/cli/src/demo/app.ts";

test.skipIf(!chromiumHere())(
  "a first visit to the page shows all planes ok, and a document one click away",
  { timeout: 120_000 },
  async () => {
    await using server = await startDashboard({ app });
    await using browser = await startChromium();
    await server.post("/runtime/v1/runs/first/events", {
      events: [{ event_id: "1", type: "run.started", data: { title: "First run" } }],
    });
    await using visitor = await browser.context();
    const page = await live(await visitor.open(server.url));
    await page.getByText("All planes ok").waitFor();
    for (const name of ["Sync", "Conversations", "Blackboard"])
      await page.getByRole("region", { name, exact: true }).waitFor();

    const documents = page.getByRole("list", { name: "Recently changed documents" });
    await documents.getByRole("link", { name: /First run/ }).click();
    const panel = page.getByRole("complementary", { name: "Document" });
    await panel.getByText('"First run"').waitFor();
    await page.getByRole("grid", { name: "Documents of runtime.run_summaries" }).waitFor();
    expect(visitor.problems).toEqual([]);
  },
);
