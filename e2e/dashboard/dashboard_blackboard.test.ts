import { agent, FatalError } from "@khala/server";
import { seriousFindings } from "@khala/testing/browser/axe";
import { chromiumHere, startChromium, type TestBrowser } from "@khala/testing/browser/chromium";
import { type DashboardServer, DEVELOPER, startDashboard } from "@khala/testing/browser/dashboard";
import { eventually } from "@khala/testing/kit/eventually";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";

const WITHHELD = "Withheld: it may quote an artifact that you may not read.";
const topicOf = (payload: unknown) => String(Object(payload).topic);

/** Writes, and cannot draw certain things. */
const agents = [
  agent("writer", {
    consumes: "Topic",
    run: ({ artifact }) => ({ type: "Draft", payload: artifact.payload }),
  }),
  agent("illustrator", {
    consumes: "Draft",
    run({ artifact }) {
      const topic = topicOf(artifact.payload);
      if (topic.startsWith("the invisible")) throw new FatalError(`Nobody can draw ${topic}.`);
      return { type: "Picture", payload: { of: topic } };
    },
  }),
  agent("publisher", { consumes: "Picture", approval: true, run: () => ({ type: "Poster", payload: null }) }),
];

vi.setConfig({ testTimeout: 180_000, hookTimeout: 180_000 });

describe.skipIf(!chromiumHere())("the blackboard room", () => {
  let browser: TestBrowser;
  let server: DashboardServer;
  beforeAll(async () => {
    [browser, server] = await Promise.all([startChromium(), startDashboard({ agents })]);
  });
  afterAll(async () => {
    await browser?.[Symbol.asyncDispose]();
    await server?.[Symbol.asyncDispose]();
  });

  const publish = (topic: string, correlation_id: string) =>
    server.post("/blackboard/v1/artifacts", { type: "Topic", payload: { topic }, correlation_id });
  const ask = async <T>(path: string): Promise<T> => {
    const headers = { authorization: `Bearer ${await server.token()}` };
    return (await (await fetch(`${server.url}/blackboard/v1/${path}`, { headers })).json()) as T;
  };
  const pictures = async (correlation: string) => {
    const path = `artifacts?type=Picture&correlation_id=${correlation}`;
    return (await ask<{ artifacts?: { payload: unknown }[] }>(path)).artifacts ?? [];
  };
  type Letter = { readonly failure: { readonly class: string; readonly message: string } };
  /** The page shows the letters that there are when it is opened, and counts those that come. */
  const buried = (agent: string, words: string) =>
    eventually(`a dead letter of ${agent} says "${words}"`, async () => {
      const { dead_letters = [] } = await ask<{ dead_letters?: Letter[] }>(
        `dead-letters/${agent}?limit=1000`,
      );
      return dead_letters.some(({ failure }) => `${failure.class}: ${failure.message}`.includes(words));
    });
  const agentOf = async (name: string) => {
    const { agents } = await ask<{ agents: { name: string; waiting: string; dead: string }[] }>("agents");
    return agents.find((each) => each.name === name)!;
  };

  test("a dead letter is understood, its payload mended, and replayed, by keyboard alone", async () => {
    await using context = await browser.context();
    const page = await context.open(`${server.url}/blackboard?tab=dead&agent=illustrator`);
    await page.getByText("illustrator has no dead letters").waitFor();
    // Nothing is in its place that it could push away: it comes by itself.
    await publish("the invisible otter", "mended");
    const grid = page.getByRole("grid", { name: "Dead letters of illustrator" });
    await grid.getByText("Nobody can draw the invisible otter.").waitFor();

    await grid.focus();
    await page.keyboard.press("ArrowDown");
    await page.keyboard.press("Enter");
    const panel = page.getByRole("complementary", { name: "Dead letter" });
    await panel.getByText("fatal: trying again would not have helped").waitFor();
    await panel
      .getByText(/at .*run/)
      .first()
      .waitFor();

    await panel.getByRole("button", { name: "Edit and replay" }).focus();
    await page.keyboard.press("Enter");
    const editor = panel.getByRole("textbox", { name: "Payload as JSON" });
    await editor.waitFor();
    await page.keyboard.press("ControlOrMeta+a");
    await page.keyboard.type('{ "topic": otter }');
    await panel.getByText(/Not JSON, line 1/).waitFor();
    expect(await panel.getByRole("button", { name: "Replay", exact: true }).isDisabled()).toBe(true);
    await page.keyboard.press("ControlOrMeta+a");
    await page.keyboard.type('{ "topic": "a visible otter" }');
    await page.keyboard.press("Tab");
    await page.keyboard.press("Enter");
    await panel.getByText("Replayed. It runs again once").waitFor();

    const [picture] = await eventually("the mended topic is drawn", async () => {
      const found = await pictures("mended");
      return found.length > 0 && found;
    });
    expect(picture!.payload).toEqual({ of: "a visible otter" });
    await page.keyboard.press("Escape");
    await panel.waitFor({ state: "detached" });
    expect(context.problems).toEqual([]);
  });

  test("replaying all says first how many would run, and then how many did", async () => {
    await using context = await browser.context();
    for (const n of [1, 2, 3]) await publish(`the invisible number ${n}`, `many-${n}`);
    for (const n of [1, 2, 3]) await buried("illustrator", `the invisible number ${n}`);
    const page = await context.open(`${server.url}/blackboard?tab=dead&agent=illustrator&q=number`);
    await page.getByText("the invisible number 3").waitFor();
    await page.getByRole("button", { name: "Replay all…" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByText("3 tasks of illustrator would run again.").waitFor();
    await dialog.getByRole("button", { name: "Replay 3" }).click();
    await dialog.getByText("3 dead letters replayed.").waitFor();
    expect(context.problems).toEqual([]);
  });

  test("replaying many shows how far it is, and stops when a person says so", async () => {
    await using context = await browser.context();
    const topics = Array.from({ length: 250 }, (_, n) => ({
      type: "Draft",
      payload: { topic: `the invisible crowd ${n}` },
    }));
    await server.post("/blackboard/v1/artifacts", { artifacts: topics });
    await eventually("all have failed", async () => Number((await agentOf("illustrator")).dead) >= 250);
    await eventually("nothing is left to do", async () => (await agentOf("illustrator")).waiting === "0");
    const { dead } = await agentOf("illustrator");
    const page = await context.open(`${server.url}/blackboard?tab=dead&agent=illustrator`);
    let asked = 0;
    const second = Promise.withResolvers<void>();
    await page.route("**/dead-letters/illustrator/replay", async (route) => {
      if (++asked === 2) await second.promise;
      await route.continue();
    });
    await page.getByRole("button", { name: "Replay all…" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByRole("button", { name: /^Replay \d/ }).click();
    await dialog.getByText(/^100 of \d+ replayed\.$/).waitFor();
    await dialog.getByRole("button", { name: "Stop" }).click();
    second.resolve();
    await dialog.waitFor({ state: "detached" });
    await eventually("no other follows", async () => {
      const { dead_letters = [] } = await ask<{ dead_letters?: { replay_id?: string }[] }>(
        "dead-letters/illustrator?limit=1000",
      );
      return dead_letters.filter(({ replay_id }) => replay_id).length >= 200;
    });
    // Else they would come between those of the tests that follow.
    await eventually("all have failed again", async () => (await agentOf("illustrator")).dead === dead);
    expect(asked).toBe(2);
    expect(context.problems).toEqual([]);
  });

  test("a dead letter of an artifact that is for others says so, and is replayed all the same", async () => {
    await using context = await browser.context();
    const secret = { type: "Draft", payload: { topic: "the invisible secret" } };
    const visibility = { kind: "private", agents: ["illustrator"] };
    await server.khala.blackboard.publish({ org: DEVELOPER.org_id, subject: "eve" }, [
      { ...secret, visibility },
    ]);
    await buried("illustrator", WITHHELD);
    const page = await context.open(`${server.url}/blackboard?tab=dead&agent=illustrator`);
    await page.getByText(WITHHELD).first().click();
    const panel = page.getByRole("complementary", { name: "Dead letter" });
    await panel.getByText("Not shown: the artifact is for named agents").waitFor();
    expect(await panel.getByRole("button", { name: "Edit and replay" }).count()).toBe(0);
    await panel.getByRole("button", { name: "Replay", exact: true }).click();
    await panel.getByText("Replayed. It runs again once").waitFor();
    expect(await page.content()).not.toContain("invisible secret");
    expect(context.problems).toEqual([]);
  });

  test("an agent is paused and resumed, and the state is seen", async () => {
    await using context = await browser.context();
    const page = await context.open(`${server.url}/blackboard?tab=agents`);
    await page.getByRole("button", { name: "Pause writer" }).click();
    await page.getByText("writer is paused on every server.").waitFor();
    await page.getByRole("button", { name: "Resume writer" }).click();
    await page.getByText("writer takes tasks again.").waitFor();
    expect(context.problems).toEqual([]);
  });

  test("a correlation is paused and goes on, and what waits for an agent is cancelled", async () => {
    await using context = await browser.context();
    const page = await context.open(`${server.url}/blackboard?tab=agents`);
    await page.getByRole("button", { name: "Pause writer" }).click();
    await page.getByText("writer is paused on every server.").waitFor();
    await publish("a curlew", "halted");
    await page.goto(`${server.url}/blackboard?correlation=halted`);
    const bar = page.getByRole("group", { name: "What came of halted" });
    await bar.getByRole("button", { name: "Pause it" }).click();
    await bar.getByText("paused", { exact: true }).waitFor();

    // The agent works again, and what is paused still waits.
    await page.goto(`${server.url}/blackboard?tab=agents`);
    await page.getByRole("button", { name: "Resume writer" }).click();
    await page.getByText("writer takes tasks again.").waitFor();
    await page.goto(`${server.url}/blackboard?correlation=halted`);
    await bar.getByText("1 paused").waitFor();
    expect(await pictures("halted")).toEqual([]);
    await bar.getByRole("button", { name: "Resume it" }).click();
    await eventually("it goes on", async () => (await pictures("halted")).length === 1);

    await page.goto(`${server.url}/blackboard?tab=agents`);
    await page.getByRole("button", { name: "Pause writer" }).click();
    await page.getByText("writer is paused on every server.").waitFor();
    await publish("a godwit", "dropped");
    await eventually("it waits", async () => (await agentOf("writer")).waiting === "1");
    const cancel = page.getByRole("button", { name: "Cancel what waits for writer" });
    await cancel.click();
    const dialog = page.getByRole("dialog", { name: "Cancel what waits for writer?" });
    await dialog.getByText("1 task that waits becomes a dead letter. Nothing runs.").waitFor();
    expect(await seriousFindings(page)).toEqual([]);
    await dialog.getByRole("button", { name: "Keep them" }).click();
    await dialog.waitFor({ state: "detached" });
    expect((await agentOf("writer")).waiting).toBe("1");
    await cancel.click();
    await dialog.getByRole("button", { name: "Cancel what waits" }).click();
    await page
      .getByText("What waited for writer becomes dead letters. What comes from now on runs.")
      .waitFor();
    await page.getByRole("button", { name: "Resume writer" }).click();
    await page.getByText("writer takes tasks again.").waitFor();
    await buried("writer", "Cancelled");
    await page.goto(`${server.url}/blackboard?tab=dead&agent=writer`);
    const letters = page.getByRole("grid", { name: "Dead letters of writer" });
    await letters.getByText("Cancelled", { exact: true }).waitFor();
    expect(await pictures("dropped")).toEqual([]);
    expect(await seriousFindings(page)).toEqual([]);
    expect(context.problems).toEqual([]);
  });

  test("the lag grows while an agent is paused, is gone when it has caught up, and is said to be old when nobody answers", async () => {
    await using context = await browser.context();
    const page = await context.open(`${server.url}/blackboard?tab=agents`);
    await page.getByRole("button", { name: "Pause writer" }).click();
    await page.getByText("writer is paused on every server.").waitFor();
    for (const n of [1, 2, 3]) await publish(`a snipe ${n}`, `lagging-${n}`);
    await page.getByRole("tab", { name: "Lag" }).click();
    const lag = page.getByRole("region", { name: "Lag by partition" });
    await lag.getByText("3 tasks behind in all").waitFor();
    const writer = lag.getByRole("row", { name: /^writer/ });
    expect(await writer.getByRole("cell").allTextContents()).toContain("3");
    const filled = async () => (await writer.locator(".lag-bar-now").boundingBox())?.width ?? 0;
    expect(await filled()).toBeGreaterThan(20);

    await page.getByRole("tab", { name: "Agents" }).click();
    await page.getByRole("button", { name: "Resume writer" }).click();
    await page.getByText("writer takes tasks again.").waitFor();
    await page.getByRole("tab", { name: "Lag" }).click();
    await lag.getByText("Every reader has caught up.").waitFor();
    expect(await writer.getByRole("cell").allTextContents()).toContain("0");
    expect(context.problems).toEqual([]);

    await context.browser.setOffline(true);
    await lag.getByText("Every reader had caught up when last asked.").waitFor();
    await page.getByRole("alert").getByText("The server cannot be reached").waitFor();
    await context.browser.setOffline(false);
    await lag.getByText("Every reader has caught up.").waitFor();
  });

  test("a task that waits for a person is approved", async () => {
    await using context = await browser.context();
    await publish("a heron", "approved");
    const page = await context.open(`${server.url}/blackboard?tab=approvals`);
    const card = page.getByRole("listitem").filter({ hasText: "a heron" });
    await card.getByRole("button", { name: "Approve the task of publisher" }).click();
    await page.getByText("Approved. It runs as soon as its agent has time.").waitFor();
    await card.waitFor({ state: "detached" });
    expect(context.problems).toEqual([]);
  });

  test("what came of a request is shown in time, and leads to each of its artifacts", async () => {
    await using context = await browser.context();
    await publish("a kingfisher", "story");
    const page = await context.open(`${server.url}/blackboard?correlation=story`);
    const timeline = page.getByRole("list", { name: "What came of story" });
    await timeline.getByRole("button", { name: /illustrator, attempt 1 ran/ }).waitFor();
    await timeline.getByRole("button", { name: /Draft published by writer/ }).click();
    const panel = page.getByRole("complementary", { name: "Artifact" });
    await panel.getByText('"a kingfisher"').waitFor();
    expect(new URL(page.url()).searchParams.get("correlation")).toBe("story");
    expect(context.problems).toEqual([]);
  });

  test("the flow is a graph, and the same facts are a table for those who cannot see it", async () => {
    await using context = await browser.context();
    const page = await context.open(`${server.url}/blackboard`);
    await page
      .getByRole("button", { name: /^writer, running/ })
      .or(page.getByLabel(/^writer, running/))
      .first()
      .waitFor();
    await page.getByRole("button", { name: "Table" }).click();
    const table = page.getByRole("grid", { name: "The flow as a table" });
    await table.getByRole("row", { name: /Draft.*illustrator/ }).waitFor();
    expect(context.problems).toEqual([]);
  });

  test("with the details open the graph stays readable, around what is selected", async () => {
    await using context = await browser.context({ viewport: { width: 1000, height: 800 } });
    const page = await context.open(`${server.url}/blackboard?tab=flow&agent=writer`);
    await page.getByRole("complementary").waitFor();
    const writer = page.locator('[data-id="agent:writer"]');
    const middleOf = (box: { x: number; width: number }) => box.x + box.width / 2;
    await eventually("the writer is in the middle", async () => {
      const [node, frame] = await Promise.all([writer.boundingBox(), page.locator(".flow").boundingBox()]);
      if (!node || !frame) return false;
      // 160 of the graph's pixels, at four fifths of their size or more.
      return Math.abs(middleOf(node) - middleOf(frame)) < 15 && node.width >= 127;
    });
    expect(context.problems).toEqual([]);
  });

  test("on a phone the flow is a table at first, and agents show their dead letters and can be paused", async () => {
    await using context = await browser.context({ viewport: { width: 390, height: 844 } });
    const page = await context.open(`${server.url}/blackboard`);
    await page.getByRole("grid", { name: "The flow as a table" }).waitFor();
    await page.getByRole("button", { name: "Graph" }).click();
    await page.locator('[data-id="agent:writer"]').waitFor();
    await page.getByRole("tab", { name: "Agents" }).click();
    const table = page.getByRole("grid", { name: "Agents" });
    for (const shown of [
      table.getByRole("columnheader", { name: "Dead" }),
      page.getByRole("button", { name: "Pause writer" }),
    ]) {
      const box = await shown.boundingBox();
      expect(box && box.x + box.width).toBeLessThanOrEqual(390);
    }
    expect(context.problems).toEqual([]);
  });

  test("Home says that a dead letter waits for a person, and leads to it", async () => {
    await using context = await browser.context();
    await publish("the invisible newt", "parked");
    const page = await context.open(server.url);
    await page.getByText("No conversation yet. Send something above.").waitFor();
    await page.goto(`${server.url}/?conv=parked&run=parked`);
    await page.getByText("illustrator gave up and waits for you").waitFor();
    await page.getByText("Nobody can draw the invisible newt.").waitFor();
    await page.getByRole("link", { name: "Look and replay" }).click();
    const panel = page.getByRole("complementary", { name: "Dead letter" });
    await panel.getByRole("button", { name: "Replay", exact: true }).waitFor();
    expect(context.problems).toEqual([]);
  });

  test.each(["light", "dark"] as const)("nothing keeps people out, %s", async (colorScheme) => {
    await using context = await browser.context({ colorScheme, reducedMotion: "reduce" });
    await publish("the invisible moth", `axe-${colorScheme}`);
    await buried("illustrator", "the invisible moth");
    const page = await context.open(`${server.url}/blackboard`);
    await page
      .getByLabel(/^writer, running/)
      .first()
      .waitFor();
    expect(await seriousFindings(page), "flow").toEqual([]);
    const tabs = {
      Agents: "writer",
      "Dead letters": "FatalError",
      Lag: "Reader",
      Timeline: "Recent correlations",
    };
    for (const [tab, text] of Object.entries(tabs)) {
      await page.getByRole("tab", { name: tab }).click();
      await page.getByText(text).first().waitFor();
      expect(await seriousFindings(page), tab).toEqual([]);
    }
    await page.goto(`${server.url}/blackboard?tab=dead&agent=illustrator`);
    await page.getByText("FatalError").first().click();
    await page.getByRole("button", { name: "Edit and replay" }).click();
    expect(await seriousFindings(page), "a dead letter").toEqual([]);
    expect(context.problems).toEqual([]);
  });
});
