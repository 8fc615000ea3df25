import { agent, FatalError } from "@khala/server";
import { seriousFindings } from "@khala/test-support/browser/axe";
import { chromiumHere, startChromium, type TestBrowser } from "@khala/test-support/browser/chromium";
import { type DashboardServer, DEVELOPER, startDashboard } from "@khala/test-support/browser/dashboard";
import { eventually } from "@khala/test-support/kit/eventually";
import { personOf } from "@khala/test-support/servers/board_servers";
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

describe.skipIf(!chromiumHere())("the Blackboard page", () => {
  let browser: TestBrowser;
  let server: DashboardServer;
  beforeAll(async () => {
    [browser, server] = await Promise.all([startChromium(), startDashboard({ agents, demo: true })]);
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
  /** Waits for a dead letter. */
  const deadLetter = (agent: string, words: string) =>
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

  test("shows a dead letter, and replays it with an edited payload, by keyboard alone", async () => {
    await using context = await browser.context();
    const page = await context.open(`${server.url}/blackboard?tab=dead&agent=illustrator`);
    await page.getByText("illustrator has no dead letters").waitFor();
    await publish("the invisible otter", "edited");
    const grid = page.getByRole("grid", { name: "Dead letters of illustrator" });
    await grid.getByText("Nobody can draw the invisible otter.").waitFor();

    await grid.focus();
    await page.keyboard.press("ArrowDown");
    await page.keyboard.press("Enter");
    const panel = page.getByRole("complementary", { name: "Dead letter" });
    await panel.getByText("fatal: not retried").waitFor();
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
    await panel.getByText(/Invalid JSON, line 1/).waitFor();
    expect(await panel.getByRole("button", { name: "Replay", exact: true }).isDisabled()).toBe(true);
    await page.keyboard.press("ControlOrMeta+a");
    await page.keyboard.type('{ "topic": "a visible otter" }');
    await page.keyboard.press("Tab");
    await page.keyboard.press("Enter");
    await panel.getByText("Replayed. The task runs once more").waitFor();

    const [picture] = await eventually("the edited topic is drawn", async () => {
      const found = await pictures("edited");
      return found.length > 0 && found;
    });
    expect(picture!.payload).toEqual({ of: "a visible otter" });
    await page.keyboard.press("Escape");
    await panel.waitFor({ state: "detached" });
    expect(context.problems).toEqual([]);
  });

  test("shows how many tasks a replay will run, and then how many it ran", async () => {
    await using context = await browser.context();
    for (const n of [1, 2, 3]) await publish(`the invisible number ${n}`, `many-${n}`);
    for (const n of [1, 2, 3]) await deadLetter("illustrator", `the invisible number ${n}`);
    const page = await context.open(`${server.url}/blackboard?tab=dead&agent=illustrator&q=number`);
    await page.getByText("the invisible number 3").waitFor();
    await page.getByRole("button", { name: "Replay all…" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByText("3 tasks of illustrator will run again.").waitFor();
    await dialog.getByRole("button", { name: "Replay 3" }).click();
    await dialog.getByText("3 dead letters replayed.").waitFor();
    expect(context.problems).toEqual([]);
  });

  test("shows the progress of a large replay, and stops it on request", async () => {
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
    // Otherwise they would appear in the tests that follow.
    await eventually("all have failed again", async () => (await agentOf("illustrator")).dead === dead);
    expect(asked).toBe(2);
    expect(context.problems).toEqual([]);
  });

  test("hides the payload of a private artifact, and can still replay its dead letter", async () => {
    await using context = await browser.context();
    const secret = { type: "Draft", payload: { topic: "the invisible secret" } };
    const visibility = { kind: "private", agents: ["illustrator"] };
    await server.khala.blackboard.publish(personOf(DEVELOPER.org_id, "eve"), [{ ...secret, visibility }]);
    await deadLetter("illustrator", WITHHELD);
    const page = await context.open(`${server.url}/blackboard?tab=dead&agent=illustrator`);
    await page.getByText(WITHHELD).first().click();
    const panel = page.getByRole("complementary", { name: "Dead letter" });
    await panel.getByText("Hidden: only named agents and the publisher").waitFor();
    expect(await panel.getByRole("button", { name: "Edit and replay" }).count()).toBe(0);
    await panel.getByRole("button", { name: "Replay", exact: true }).click();
    await panel.getByText("Replayed. The task runs once more").waitFor();
    expect(await page.content()).not.toContain("invisible secret");
    expect(context.problems).toEqual([]);
  });

  test("pauses and resumes an agent", async () => {
    await using context = await browser.context();
    const page = await context.open(`${server.url}/blackboard?tab=agents`);
    await page.getByRole("button", { name: "Pause writer" }).click();
    await page.getByText("writer is paused on all servers.").waitFor();
    await page.getByRole("button", { name: "Resume writer" }).click();
    await page.getByText("writer is running again.").waitFor();
    expect(context.problems).toEqual([]);
  });

  test("pauses and resumes a correlation, and cancels the tasks of an agent", async () => {
    await using context = await browser.context();
    const page = await context.open(`${server.url}/blackboard?tab=agents`);
    await page.getByRole("button", { name: "Pause writer" }).click();
    await page.getByText("writer is paused on all servers.").waitFor();
    await publish("a curlew", "halted");
    await page.goto(`${server.url}/blackboard?correlation=halted`);
    const bar = page.getByRole("group", { name: "Correlation halted" });
    await bar.getByRole("button", { name: "Pause" }).click();
    await bar.getByText("paused", { exact: true }).waitFor();

    // The agent runs again, and the correlation is still paused.
    await page.goto(`${server.url}/blackboard?tab=agents`);
    await page.getByRole("button", { name: "Resume writer" }).click();
    await page.getByText("writer is running again.").waitFor();
    await page.goto(`${server.url}/blackboard?correlation=halted`);
    await bar.getByText("1 paused").waitFor();
    expect(await pictures("halted")).toEqual([]);
    await bar.getByRole("button", { name: "Resume" }).click();
    await eventually("it is resumed", async () => (await pictures("halted")).length === 1);

    await page.goto(`${server.url}/blackboard?tab=agents`);
    await page.getByRole("button", { name: "Pause writer" }).click();
    await page.getByText("writer is paused on all servers.").waitFor();
    await publish("a godwit", "dropped");
    await eventually("it waits", async () => (await agentOf("writer")).waiting === "1");
    const cancel = page.getByRole("button", { name: "Cancel tasks of writer" });
    await cancel.click();
    const dialog = page.getByRole("dialog", { name: "Cancel tasks of writer?" });
    await dialog
      .getByText("1 queued task will move to the dead-letter queue. No tasks are running.")
      .waitFor();
    expect(await seriousFindings(page)).toEqual([]);
    await dialog.getByRole("button", { name: "Keep tasks" }).click();
    await dialog.waitFor({ state: "detached" });
    expect((await agentOf("writer")).waiting).toBe("1");
    await cancel.click();
    await dialog.getByRole("button", { name: "Cancel tasks" }).click();
    await page
      .getByText("Queued tasks of writer move to the dead-letter queue. New tasks run as usual.")
      .waitFor();
    await page.getByRole("button", { name: "Resume writer" }).click();
    await page.getByText("writer is running again.").waitFor();
    await deadLetter("writer", "Cancelled");
    await page.goto(`${server.url}/blackboard?tab=dead&agent=writer`);
    const letters = page.getByRole("grid", { name: "Dead letters of writer" });
    await letters.getByText("Cancelled", { exact: true }).waitFor();
    expect(await pictures("dropped")).toEqual([]);
    expect(await seriousFindings(page)).toEqual([]);
    expect(context.problems).toEqual([]);
  });

  test("shows the lag of a paused agent, that it caught up, and figures as old while offline", async () => {
    await using context = await browser.context();
    const page = await context.open(`${server.url}/blackboard?tab=agents`);
    await page.getByRole("button", { name: "Pause writer" }).click();
    await page.getByText("writer is paused on all servers.").waitFor();
    for (const n of [1, 2, 3]) await publish(`a snipe ${n}`, `lagging-${n}`);
    await page.getByRole("tab", { name: "Lag" }).click();
    const lag = page.getByRole("region", { name: "Lag by partition" });
    await lag.getByText("3 tasks behind in total").waitFor();
    const writer = lag.getByRole("row", { name: /^writer/ });
    expect(await writer.getByRole("cell").allTextContents()).toContain("3");
    const filled = async () => (await writer.locator(".lag-bar-now").boundingBox())?.width ?? 0;
    expect(await filled()).toBeGreaterThan(20);

    await page.getByRole("tab", { name: "Agents" }).click();
    await page.getByRole("button", { name: "Resume writer" }).click();
    await page.getByText("writer is running again.").waitFor();
    await page.getByRole("tab", { name: "Lag" }).click();
    await lag.getByText("All readers are up to date", { exact: true }).waitFor();
    expect(await writer.getByRole("cell").allTextContents()).toContain("0");
    expect(context.problems).toEqual([]);

    await context.browser.setOffline(true);
    await lag.getByText("All readers are up to date, as of the last response").waitFor();
    await page.getByRole("alert").getByText("Server not reachable").waitFor();
    await context.browser.setOffline(false);
    await lag.getByText("All readers are up to date", { exact: true }).waitFor();
  });

  test("shows a task as soon as it waits, and approves it", async () => {
    await using context = await browser.context();
    const page = await context.open(`${server.url}/blackboard?tab=approvals`);
    const inbox = page.getByRole("list", { name: "Pending approvals" });
    await inbox.or(page.getByText("No pending approvals")).waitFor();
    await publish("a heron", "approved");
    const card = page.getByRole("listitem").filter({ hasText: "a heron" });
    await card.getByRole("button", { name: "Approve the task of publisher" }).click();
    await page.getByText("Approved. The task is queued.").waitFor();
    await card.waitFor({ state: "detached" });
    expect(context.problems).toEqual([]);
  });

  test("approves and rejects tool calls of conversations, whose runs go on", async () => {
    await using context = await browser.context();
    for (const what of ["the invoice", "the yacht"])
      await server.post("/chat", { conv_id: what.replace(" ", "-"), message: `/approve ${what}` });
    const page = await context.open(`${server.url}/blackboard?tab=approvals`);
    const card = (what: string) => page.getByRole("listitem").filter({ hasText: what });
    await card("the invoice").getByRole("button", { name: "Approve the tool approve" }).click();
    await page.getByText("Approved. The run continues.").waitFor();
    await card("the invoice").waitFor({ state: "detached" });
    await card("the yacht").getByRole("button", { name: "Reject the tool approve" }).click();
    await page.getByRole("textbox", { name: "Reason" }).fill("Too large.");
    await page.getByRole("dialog").getByRole("button", { name: "Reject" }).click();
    await page.getByText("Rejected. The run continues without it.").waitFor();
    await card("the yacht").waitFor({ state: "detached" });
    for (const [id, end] of [
      ["the-invoice", "Done: the invoice"],
      ["the-yacht", "Not done. Too large."],
    ])
      await eventually(`${id} says "${end}"`, async () => {
        const headers = { authorization: `Bearer ${await server.token()}` };
        return (await (await fetch(`${server.url}/chat/${id}`, { headers })).text()).includes(end!);
      });
    expect(context.problems).toEqual([]);
  });

  test("shows the timeline of a correlation, with links to its artifacts", async () => {
    await using context = await browser.context();
    await publish("a kingfisher", "story");
    const page = await context.open(`${server.url}/blackboard?correlation=story`);
    const timeline = page.getByRole("list", { name: "Timeline of story" });
    await timeline.getByRole("button", { name: /illustrator, attempt 1 succeeded/ }).waitFor();
    await timeline.getByRole("button", { name: /Draft published by writer/ }).click();
    const panel = page.getByRole("complementary", { name: "Artifact" });
    await panel.getByText('"a kingfisher"').waitFor();
    expect(new URL(page.url()).searchParams.get("correlation")).toBe("story");
    expect(context.problems).toEqual([]);
  });

  test("shows the flow as a graph, and as a table for screen readers", async () => {
    await using context = await browser.context();
    const page = await context.open(`${server.url}/blackboard`);
    await page
      .getByRole("button", { name: /^writer, running/ })
      .or(page.getByLabel(/^writer, running/))
      .first()
      .waitFor();
    await page.getByRole("button", { name: "Table" }).click();
    const table = page.getByRole("grid", { name: "Flow as a table" });
    await table.getByRole("row", { name: /Draft.*illustrator/ }).waitFor();
    expect(context.problems).toEqual([]);
  });

  test("keeps the graph readable and centred on the selection while the details are open", async () => {
    await using context = await browser.context({ viewport: { width: 1000, height: 800 } });
    const page = await context.open(`${server.url}/blackboard?tab=flow&agent=writer`);
    await page.getByRole("complementary").waitFor();
    const writer = page.locator('[data-id="agent:writer"]');
    const middleOf = (box: { x: number; width: number }) => box.x + box.width / 2;
    await eventually("the writer is in the middle", async () => {
      const [node, frame] = await Promise.all([writer.boundingBox(), page.locator(".flow").boundingBox()]);
      if (!node || !frame) return false;
      // 160 pixels of the graph, at a zoom of 0.8 or more.
      return Math.abs(middleOf(node) - middleOf(frame)) < 15 && node.width >= 127;
    });
    expect(context.problems).toEqual([]);
  });

  test("shows a table first on a phone, where agents can be paused too", async () => {
    await using context = await browser.context({ viewport: { width: 390, height: 844 } });
    const page = await context.open(`${server.url}/blackboard`);
    await page.getByRole("grid", { name: "Flow as a table" }).waitFor();
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

  test("links from Home to a dead letter", async () => {
    await using context = await browser.context();
    await publish("the invisible newt", "parked");
    const page = await context.open(server.url);
    await page.getByText("Try it", { exact: true }).waitFor();
    await server.post("/chat", { conv_id: "parked", message: "Draw it" });
    await page.goto(`${server.url}/?conv=parked&run=parked`);
    await page.getByText("The task of illustrator is a dead letter").waitFor();
    await page.getByText("Nobody can draw the invisible newt.").waitFor();
    await page.getByRole("link", { name: "Review and replay" }).click();
    const panel = page.getByRole("complementary", { name: "Dead letter" });
    await panel.getByRole("button", { name: "Replay", exact: true }).waitFor();
    expect(context.problems).toEqual([]);
  });

  test.each(["light", "dark"] as const)("is accessible, %s", async (colorScheme) => {
    await using context = await browser.context({ colorScheme, reducedMotion: "reduce" });
    await publish("the invisible moth", `axe-${colorScheme}`);
    await deadLetter("illustrator", "the invisible moth");
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
