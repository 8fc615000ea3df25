import { agent, defineApp, defineModel, defineStream, FatalError } from "@khala/server";
import { scripted } from "@khala/server/engines";
import { seriousFindings } from "@khala/test-support/browser/axe";
import { chromiumHere, startChromium, type TestBrowser } from "@khala/test-support/browser/chromium";
import { type DashboardServer, startDashboard } from "@khala/test-support/browser/dashboard";
import { live } from "@khala/test-support/browser/demo";
import { RawClient } from "@khala/test-support/clients/clients";
import { until } from "@khala/test-support/kit/until";
import type { Locator } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { z } from "zod";

vi.setConfig({ testTimeout: 120_000, hookTimeout: 120_000 });

const REASON = "The scale is not connected.";
const BROKEN = "Cannot read the price of an order without one.";
const orders = defineStream({
  kind: "order",
  path: "/shop/v1/orders",
  scope: "runtime:write",
  events: { "order.placed": z.object({ price: z.number().optional() }) },
});
const openOrders = defineModel({
  topic: "shop.orders",
  prefix: "order",
  streams: [orders],
  project(_before: { id: string; price: number } | null, { streamId, data }) {
    if (data.price === undefined) throw new Error(BROKEN);
    return { id: streamId, price: data.price };
  },
});
const BUFFER = 16_384;
const REFUSE_LAG = 5;

/** From Home to the cause in at most three clicks, for an operator who is woken at night. */
describe.skipIf(!chromiumHere())("an operator finds", () => {
  let browser: TestBrowser;
  let server: DashboardServer;
  beforeAll(async () => {
    [browser, server] = await Promise.all([
      startChromium(),
      startDashboard({
        app: defineApp({
          models: [openOrders],
          engine: scripted(),
          agents: [
            agent("packer", {
              consumes: "Parcel",
              run() {
                throw new FatalError(REASON);
              },
            }),
            agent("weigher", {
              consumes: "Crate",
              run() {
                throw new FatalError(REASON);
              },
            }),
            // Nobody claims its tasks: it is the work of a program that is not there.
            agent("courier", { consumes: "Route" }),
          ],
        }),
        settings: {
          KHALA_SOCKET_BUFFER_BYTES: String(BUFFER),
          KHALA_SLOW_CONSUMER_MS: "1000",
          KHALA_BOARD_LAG_SLOW: String(REFUSE_LAG - 1),
          KHALA_BOARD_LAG_REFUSE: String(REFUSE_LAG),
        },
      }),
    ]);
  });
  afterAll(async () => {
    await browser?.[Symbol.asyncDispose]();
    await server?.[Symbol.asyncDispose]();
  });

  /** The Home page, and a click that counts. */
  async function walk() {
    const context = await browser.context({ reducedMotion: "reduce" });
    const page = await live(await context.open(server.url));
    let clicks = 0;
    return {
      context,
      page,
      click: async (target: Locator) => {
        clicks++;
        await target.click();
      },
      clicks: () => clicks,
      [Symbol.asyncDispose]: () => context[Symbol.asyncDispose](),
    };
  }

  test("why an agent is broken", async () => {
    await server.post("/blackboard/v1/artifacts", { type: "Parcel", payload: { weight: 2 } });
    await using night = await walk();
    const { page, click } = night;
    const board = page.getByRole("region", { name: "Blackboard", exact: true });
    await click(board.getByRole("link", { name: "1 dead letter" }));
    await click(page.getByRole("grid").getByRole("row", { name: /scale is not connected/ }));
    await page.getByRole("complementary").getByText(REASON).first().waitFor();
    expect(night.clicks()).toBeLessThanOrEqual(3);
    expect(await seriousFindings(page)).toEqual([]);
    // It was published without a correlation: it began one.
    await page.goto(`${server.url}/blackboard?tab=timeline`);
    await page.getByRole("link", { name: /Parcel/ }).click();
    await page
      .getByRole("list", { name: /Timeline of/ })
      .getByText("Parcel")
      .first()
      .waitFor();
    expect(night.context.problems).toEqual([]);
  });

  test("that the dead letters which Home counts are those of another org", async () => {
    const scopes = ["blackboard:write"];
    const { token } = await server.khala.auth.issuer!.mint({ sub: "ada", org_id: "acme", scopes });
    const published = await fetch(`${server.url}/blackboard/v1/artifacts`, {
      method: "POST",
      headers: { "content-type": "application/json", authorization: `Bearer ${token}` },
      body: JSON.stringify({ type: "Crate", payload: {} }),
    });
    expect(published.status).toBe(201);
    await using night = await walk();
    const { page } = night;
    await page.goto(`${server.url}/blackboard?tab=agents`);
    await page
      .getByRole("row", { name: /weigher/ })
      .getByRole("link", { name: "1" })
      .click();
    await page.getByText("weigher has no dead letters in this org").waitFor();
    await page.getByText(/1 dead letter of other orgs/).waitFor();
    expect(await seriousFindings(page)).toEqual([]);
    expect(night.context.problems).toEqual([]);
  });

  test("which agent lags so far that publishing is refused", async () => {
    const artifacts = Array.from({ length: REFUSE_LAG + 1 }, (_, i) => ({ type: "Route", payload: { i } }));
    await server.post("/blackboard/v1/artifacts", { artifacts });
    await using night = await walk();
    const { page, click } = night;
    const board = page.getByRole("region", { name: "Blackboard", exact: true });
    await board.getByText(/Publishing is refused, because these lag too far behind: courier/).waitFor();
    // Before the dead letter, which stops nobody.
    await page.getByText(/Blackboard degraded: Publishing is refused/).waitFor();
    await click(board.getByRole("link", { name: "Find the cause" }));
    const lag = page.getByRole("region", { name: "Lag by partition" });
    await lag
      .getByRole("row", { name: /courier/ })
      .first()
      .waitFor();
    expect(night.clicks()).toBeLessThanOrEqual(3);
    expect(await seriousFindings(page)).toEqual([]);
    expect(night.context.problems).toEqual([]);
  });

  test("which event a projection is broken at, and why", async () => {
    const events = [{ event_id: "placed", type: "order.placed", data: {} }];
    await server.post("/shop/v1/orders/o-7/events", { events });
    await using night = await walk();
    const { page, click } = night;
    const sync = page.getByRole("region", { name: "Sync", exact: true });
    await click(sync.getByRole("link", { name: "Find the cause" }));
    await click(page.getByRole("grid").getByRole("row", { name: /shop\.orders.*1 set aside/ }));
    const aside = page.getByRole("region", { name: "Streams set aside" });
    await aside.getByText(BROKEN).waitFor();
    await aside.getByText("event 1 of the stream").waitFor();
    expect(night.clicks()).toBeLessThanOrEqual(3);
    expect(await seriousFindings(page)).toEqual([]);
    expect(night.context.problems).toEqual([]);
  });

  test("which client was too slow, and what that means", async () => {
    const raw = await RawClient.connect(`${server.url.replace("http", "ws")}/socket`, {
      token: await server.token(),
    });
    raw.ws.pause();
    const flood = JSON.stringify([null, "x".repeat(10_000), "phoenix", "heartbeat", {}]);
    for (let i = 0; i < 3_000; i++) raw.send(flood);
    const slowCloses = async () => {
      const response = await fetch(`${server.url}/ops/v1/overview`, {
        headers: { authorization: `Bearer ${await server.token()}` },
      });
      const { gateway } = (await response.json()) as { gateway: { slow_closes: number } };
      return gateway.slow_closes > 0;
    };
    await until("it is closed", slowCloses);
    raw.ws.terminate();
    await using night = await walk();
    const { page, click } = night;
    await click(
      page.getByRole("list", { name: "Server" }).getByRole("link", { name: /slow consumers? closed/ }),
    );
    const row = page
      .getByRole("grid", { name: "Closed sockets" })
      .getByRole("row", { name: /dev.*slow_consumer/ });
    await click(row.getByRole("link", { name: "slow_consumer" }));
    const panel = page.getByRole("complementary", { name: "Slow consumer" });
    await panel.getByText("The server sent more than this connection could take.").waitFor();
    expect(night.clicks()).toBeLessThanOrEqual(3);
    expect(await seriousFindings(page)).toEqual([]);
    expect(night.context.problems).toEqual([]);
  });

  test("why a run failed", async () => {
    await server.post("/chat", { conv_id: "night", message: "/fail" });
    await using night = await walk();
    const { page, click } = night;
    const conversations = page.getByRole("region", { name: "Conversations", exact: true });
    await click(conversations.getByRole("link", { name: "1 failed run" }));
    await click(page.getByRole("grid", { name: "Failed runs" }).getByRole("row", { name: /asked to fail/ }));
    const panel = page.getByRole("complementary", { name: "Failed run" });
    await panel.getByRole("heading", { name: "Exception" }).waitFor();
    await panel.getByText("The script was asked to fail. Send another message.").last().waitFor();
    expect(night.clicks()).toBeLessThanOrEqual(3);
    expect(await seriousFindings(page)).toEqual([]);
    expect(night.context.problems).toEqual([]);
  });
});
