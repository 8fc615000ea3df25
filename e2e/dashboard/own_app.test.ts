import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { agent, defineApp, defineModel, defineStream } from "@khala/server";
import { scripted } from "@khala/server/engines";
import { seriousFindings } from "@khala/test-support/browser/axe";
import { chromiumHere, startChromium, type TestBrowser } from "@khala/test-support/browser/chromium";
import { type DashboardServer, startDashboard } from "@khala/test-support/browser/dashboard";
import { live } from "@khala/test-support/browser/demo";
import { eventually } from "@khala/test-support/kit/eventually";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { z } from "zod";

vi.setConfig({ testTimeout: 120_000, hookTimeout: 120_000 });

const orders = defineStream({
  kind: "order",
  path: "/shop/v1/orders",
  scope: "shop:write",
  events: { "order.placed": z.object({ customer: z.string(), total: z.number() }) },
});

interface Order {
  readonly customer: string;
  readonly total: number;
  readonly status: string;
}

const app = defineApp({
  models: [
    defineModel({
      topic: "shop.orders",
      prefix: "order",
      streams: [orders],
      project: (_: Order | null, event): Order => ({ ...event.data, status: "placed" }),
    }),
  ],
  agents: [agent("packer", { consumes: "Parcel", run: () => {} })],
  schemas: { Parcel: z.object({ weight: z.number() }) },
  engine: scripted({ tokenMs: 1 }),
});

/** A page is about the app that its server serves. */
describe.skipIf(!chromiumHere())("in an app of one's own", () => {
  let browser: TestBrowser;
  let server: DashboardServer;
  beforeAll(async () => {
    [browser, server] = await Promise.all([startChromium(), startDashboard({ app })]);
  });
  afterAll(async () => {
    await browser?.[Symbol.asyncDispose]();
    await server?.[Symbol.asyncDispose]();
  });

  test("Home names its models and agents, and shows working commands for its types", async () => {
    await using context = await browser.context({ permissions: ["clipboard-read", "clipboard-write"] });
    const page = await live(await context.open(server.url));
    const summary = page.getByRole("region", { name: "This app" });
    await summary.getByRole("link", { name: "shop.orders" }).waitFor();
    await summary.getByRole("link", { name: "packer" }).waitFor();
    expect(await page.getByText("Try it").count()).toBe(0);
    for (const [name, answer] of [
      ["Append order.placed", '"seq":"1"'],
      ["Send a message", '"run_id"'],
      ["Publish a Parcel", '"status":"published"'],
    ] as const) {
      await page.getByRole("button", { name: `Copy: ${name}` }).click();
      let command = "";
      await eventually(`the command: ${name}`, async () => {
        command = await page.evaluate<string>("navigator.clipboard.readText()");
        return (
          command.includes("curl") &&
          command.includes(answer === '"run_id"' ? "/chat" : name.split(" ").at(-1)!)
        );
      });
      const { stdout } = await promisify(execFile)("sh", ["-c", command]);
      expect(stdout, command).toContain(answer);
    }
    expect(await seriousFindings(page)).toEqual([]);
    expect(context.problems).toEqual([]);
  });

  test("documents have columns of their own fields, and can be sorted and searched", async () => {
    const place = (id: string, customer: string, total: number) =>
      server.post(`${orders.path}/${id}/events`, {
        events: [{ event_id: id, type: "order.placed", data: { customer, total } }],
      });
    await place("one", "Ada", 9);
    await place("two", "Bob", 100);
    await place("three", "Cyd", 20);
    await using context = await browser.context();
    const page = await live(await context.open(`${server.url}/sync?topic=shop.orders`));
    const grid = page.getByRole("grid", { name: "Documents of shop.orders" });
    await grid.getByRole("columnheader", { name: "Customer" }).waitFor();
    await grid.getByText("Cyd").waitFor();
    const total = grid.getByRole("columnheader", { name: "Total" });
    await total.getByRole("button").click();
    await total.getByRole("button").click();
    expect(await total.getAttribute("aria-sort")).toBe("descending");
    const customers = async () => (await grid.getByText(/^(Ada|Bob|Cyd)$/).allTextContents()).join(" ");
    await eventually("sorted by number", async () => (await customers()) === "Bob Cyd Ada");
    await page.getByRole("searchbox", { name: "Search documents" }).fill("ada");
    await eventually("found by content", async () => (await customers()) === "Ada");
    expect(await seriousFindings(page)).toEqual([]);
    expect(context.problems).toEqual([]);
  });

  test("charts start with the server's history", async () => {
    await using context = await browser.context();
    const page = await live(await context.open(`${server.url}/operations?tab=load`));
    await page.getByRole("img", { name: "Memory" }).waitFor();
    await page.getByText("The last hour of this server").waitFor();
    expect(context.problems).toEqual([]);
  });

  test("an unknown URL gets a page that leads back, and a program gets the error", async () => {
    const program = await fetch(`${server.url}/nope`);
    expect(program.status).toBe(404);
    expect(await program.json()).toMatchObject({ error: { code: "not_found" } });
    await using context = await browser.context();
    const page = await context.open(`${server.url}/nope`);
    await page.getByRole("heading", { name: "This page does not exist" }).waitFor();
    await page.getByRole("link", { name: "Go to Home" }).click();
    await page.getByRole("region", { name: "This app" }).waitFor();
  });

  test("the documentation of this version is one click away, and its links stay inside", async () => {
    await using context = await browser.context();
    const page = await live(await context.open(`${server.url}/docs?page=ENGINES.md`));
    const text = page.getByRole("region", { name: "Engines" });
    await text.getByRole("heading").first().waitFor();
    expect(await seriousFindings(page)).toEqual([]);
    await page.goto(`${server.url}/operations?tab=errors&item=not_found`);
    await page.getByRole("link", { name: /All codes/ }).click();
    await page.getByRole("region", { name: "Errors" }).getByText("not_found").first().waitFor();
    expect(context.problems).toEqual([]);
  });
});
