import { canonicalJson } from "@khala/contracts";
import { agent, runSummaries, workerSummaries } from "@khala/server";
import { scripted } from "@khala/server/engines";
import { chromiumHere, startChromium, type TestBrowser } from "@khala/test-support/browser/chromium";
import { type DashboardServer, DEVELOPER, startDashboard } from "@khala/test-support/browser/dashboard";
import { live } from "@khala/test-support/browser/demo";
import { mainThreadTasks } from "@khala/test-support/browser/main_thread";
import { writeDocuments } from "@khala/test-support/postgres/write_documents";
import type { Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

const BATCH = 100;
const BATCHES = 30;
/** Documents that change, and those of the long table. */
const CHANGING = 200;
const MANY = 100_000;

const agents = [
  agent("writer", { consumes: "Topic", run: () => ({ type: "Draft", payload: null }) }),
  agent("reviewer", { consumes: "Draft", run: () => ({ type: "Review", payload: null }) }),
];
const engine = scripted({ tokenMs: 1 });

const runKey = (n: number) => `run:load-${String(n).padStart(6, "0")}`;
const workerKey = (n: number) => `worker:load-${String(n).padStart(6, "0")}`;
const count = (n: number) => Array.from({ length: n }, (_, i) => i);

/** How long the page blocks depends on the machine: it is printed. What the page shows in the end is asserted. */
describe.skipIf(!chromiumHere())("the page under load", () => {
  let browser: TestBrowser;
  let server: DashboardServer;
  beforeAll(async () => {
    [browser, server] = await Promise.all([startChromium(), startDashboard({ agents, engine })]);
    await write(runSummaries, runKey, count(CHANGING));
    await server.database.query({
      text: `INSERT INTO runtime.sync_codex_worker_summaries (doc_key, doc_version, payload, payload_hash, org_id, watermark)
        SELECT 'worker:load-' || lpad(n::text, 6, '0'), 0, convert_to('{"n":' || n || '}', 'UTF8'),
               sha256(convert_to('{"n":' || n || '}', 'UTF8')), $1, 0
        FROM generate_series(0, ${MANY - 1}) AS n`,
      values: [DEVELOPER.org_id],
    });
    await server.database.query({ text: "ANALYZE runtime.sync_codex_worker_summaries" });
  });
  afterAll(async () => {
    await browser?.[Symbol.asyncDispose]();
    await server?.[Symbol.asyncDispose]();
  });

  type Model = typeof runSummaries | typeof workerSummaries;
  const versions = new Map<string, number>();
  /** Writes the next version of each of these documents. */
  async function write(
    model: Model,
    keyOf: (n: number) => string,
    numbers: readonly number[],
  ): Promise<void> {
    const writes = numbers.map((number) => {
      const docKey = keyOf(number);
      const version = (versions.get(docKey) ?? 0) + 1;
      versions.set(docKey, version);
      const payload = canonicalJson({
        title: `Load ${number}`,
        status: "running",
        steps: version,
        updated_at: new Date().toISOString(),
      });
      const { org_id: org } = DEVELOPER;
      return { docKey, docVersion: BigInt(version), op: "upsert" as const, payload, org, audience: null };
    });
    await writeDocuments(server.database, server.khala.sync.sink, model, writes);
  }

  /** Writes all batches, and returns the updates per second. */
  async function load(model: Model, keyOf: (n: number) => string): Promise<number> {
    const began = performance.now();
    for (let batch = 0; batch < BATCHES; batch++)
      await write(
        model,
        keyOf,
        count(BATCH).map((i) => (batch * BATCH + i) % CHANGING),
      );
    return Math.round((BATCHES * BATCH) / ((performance.now() - began) / 1_000));
  }

  /** Does something under load, and prints how long the page blocked. */
  async function underLoad(
    page: Page,
    view: string,
    loading: () => Promise<number>,
    act: () => Promise<void> = async () => {},
  ): Promise<void> {
    let rate = 0;
    const [longest] = await mainThreadTasks(page, async () => {
      [rate] = await Promise.all([loading(), act()]);
    });
    const { cpuMs = 0, wallMs = 0 } = longest ?? {};
    console.log(
      `${view}: ${rate} updates/s, longest task ${cpuMs.toFixed(1)} ms CPU, ${wallMs.toFixed(1)} ms elapsed`,
    );
  }

  const rowsDrawn = (page: Page) => page.locator(".table-row").count();

  test("Home shows the documents changed last", async () => {
    await using visitor = await browser.context();
    const page = await live(await visitor.open(server.url));
    const list = page.getByRole("list", { name: "Recently changed documents" });
    await list.getByRole("link").first().waitFor();
    await underLoad(
      page,
      "Home",
      () => load(runSummaries, runKey),
      async () => {
        await page.keyboard.press("ControlOrMeta+k");
        await page.getByRole("combobox", { name: "Search" }).fill("settings");
        await page.getByRole("option", { name: /settings/ }).waitFor();
        await page.keyboard.press("Escape");
      },
    );
    for (const last of [7, 77, 177]) await write(runSummaries, runKey, [last]);
    for (const last of [7, 77, 177]) await list.locator(`a[title="${runKey(last)}"]`).waitFor();
    expect(visitor.problems).toEqual([]);
  });

  test("a table of 100,000 documents shows the last version of each, and renders visible rows only", async () => {
    await using visitor = await browser.context();
    const { topic } = workerSummaries;
    const page = await live(await visitor.open(`${server.url}/sync?topic=${topic}`));
    const grid = page.getByRole("grid", { name: `Documents of ${topic}` });
    await grid.getByText(workerKey(0)).waitFor();
    const loading = () => load(workerSummaries, workerKey);
    await underLoad(page, "Sync, loading all rows", loading, async () => {
      await page.getByRole("button", { name: "Load all" }).click();
      await page.getByText("100,000 documents", { exact: true }).waitFor({ timeout: 300_000 });
    });
    await underLoad(page, "Sync, idle", loading);
    await grid.focus();
    await underLoad(page, "Sync, jumping", loading, async () => {
      await page.keyboard.press("End");
      await grid.getByText(workerKey(MANY - 1)).waitFor();
      expect(await rowsDrawn(page)).toBeLessThan(100);
      await page.keyboard.press("Home");
      await grid.getByText(workerKey(0)).waitFor();
    });
    for (const key of [workerKey(0), workerKey(5)]) {
      const row = grid.getByRole("row", { name: new RegExp(key) });
      await row.getByRole("gridcell", { name: String(versions.get(key)), exact: true }).waitFor();
    }
    expect(await rowsDrawn(page)).toBeLessThan(100);
    expect(visitor.problems).toEqual([]);
  });

  test("a streaming conversation ends with its last token", async () => {
    await using visitor = await browser.context();
    const page = await live(await visitor.open(`${server.url}/conversations?conv=load`));
    const tokens = BATCH * BATCHES;
    await underLoad(page, "Conversations, a token per update", async () => {
      await page.getByRole("textbox", { name: "Message" }).fill(`/long ${tokens}`);
      const began = performance.now();
      await page.keyboard.press("Enter");
      await page.getByRole("button", { name: "Stop" }).waitFor();
      await page.getByRole("button", { name: "Stop" }).waitFor({ state: "detached" });
      return Math.round(tokens / ((performance.now() - began) / 1_000));
    });
    const answer = page.locator(".message-assistant .message-text").last();
    expect((await answer.textContent())?.endsWith(` ${tokens}`)).toBe(true);
    expect(visitor.problems).toEqual([]);
  });

  test("the graph of the blackboard counts the artifacts", async () => {
    await using visitor = await browser.context();
    const page = await live(await visitor.open(`${server.url}/blackboard`));
    await page.locator(".react-flow__node").first().waitFor();
    await underLoad(
      page,
      "Blackboard, the graph",
      () => load(runSummaries, runKey),
      async () => {
        for (const n of count(100))
          await server.post("/blackboard/v1/artifacts", {
            type: "Topic",
            payload: { n },
            correlation_id: `load-${n}`,
          });
      },
    );
    await page.getByRole("group", { name: "Review, 100 artifacts" }).waitFor();
    expect(visitor.problems).toEqual([]);
  });
});
