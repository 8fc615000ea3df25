import { join } from "node:path";
import { SCOPES } from "@khala/contracts";
import type { ConversationStateJson } from "@khala/contracts/conversation/v1";
import { seeded } from "@khala/test-support/kit/context";
import { eventually } from "@khala/test-support/kit/eventually";
import { testDatabase } from "@khala/test-support/postgres/test_database";
import { expect, test } from "vitest";
import { ROOT } from "../../scripts/run.ts";
import { Chaos } from "./support/chaos.ts";
import { checkOut, newestRelease } from "./support/released_tree.ts";
import { ANSWER, UpgradeLoad } from "./support/upgrade_load.ts";

const PROGRAM = "packages/test-support/src/programs/upgraded.ts";
const SEED = 11;
/** No answer within this time is a failure. */
const ANSWER_MS = 30_000;

test("replaces three servers one at a time under load, with no failed request and no lost or repeated update", async () => {
  const release = await newestRelease();
  console.log(
    `The servers that are replaced are those of ${release ?? "this tree: there is no release yet"}.`,
  );
  await using old = release ? await checkOut(release) : undefined;
  // The older servers create the schema.
  await using store = await testDatabase({ empty: true });
  await using chaos = new Chaos(store, SEED, ANSWER_MS);
  const oldProgram = join(old?.folder ?? ROOT, PROGRAM);
  const first = await chaos.gateway({}, oldProgram);
  const servers = [first, await chaos.gateway({}, oldProgram), await chaos.gateway({}, oldProgram)];
  await chaos.people();
  const scopes = [SCOPES.chat, SCOPES.blackboardRead, SCOPES.blackboardWrite, SCOPES.blackboardWork];
  // An org of its own: runs of conversations are documents, too.
  const token = () => chaos.token("upgrade", "eve", scopes);
  const load = new UpgradeLoad({ urls: chaos.urls, token, random: seeded(SEED) });
  const start = () => {
    chaos.startWriters();
    load.start();
  };
  const pause = () => Promise.all([chaos.stopWriters(), load.stop()]);

  start();
  for (const server of servers) {
    await chaos.steps(40);
    await chaos.gateway({}, join(ROOT, PROGRAM));
    // The load balancer takes it out, and what is on its way to it is answered, before it is told to stop.
    chaos.withdraw(server);
    await pause();
    start();
    await server.end("SIGTERM");
    expect(server.ending).toBe(0);
  }
  await chaos.steps(40);
  await pause();

  expect(load.failures).toEqual([]);
  expect(chaos.writers.flatMap(({ failures }) => failures)).toEqual([]);
  // Every witness is live again, and holds every step once.
  await chaos.agree();

  expect(load.conversations.length).toBeGreaterThan(0);
  for (const id of load.conversations) {
    const said = await eventually(`the answer in ${id} ends`, async () => {
      const response = await fetch(`${chaos.urls()[0]}/chat/${id}`, {
        headers: { authorization: `Bearer ${await token()}` },
      });
      const { messages = [] } = (await response.json()) as ConversationStateJson;
      const ended = messages.length > 0 && messages.every(({ status }) => status !== "streaming");
      return ended && messages;
    });
    expect.soft(said.map(({ role }) => role)).toEqual(["user", "assistant"]);
    // A server that stops completes its answers first.
    const { status, parts = [] } = said[1]!;
    const answer = parts.map(({ text }) => text).join("");
    expect.soft({ status, answer }).toEqual({ status: "done", answer: ANSWER });
  }

  expect(load.drafts.length).toBeGreaterThan(0);
  const drafts = [...load.drafts];
  // For the worker's sake.
  load.start();
  const pages = await eventually("every draft has its page", async () => {
    const rows = await store.database.query<{ of: string }>({
      text: `SELECT body::json -> 'payload' ->> 'of' AS of FROM runtime.board_artifacts WHERE type = 'Page'`,
    });
    const made = rows.map(({ of }) => of);
    return drafts.every((id) => made.includes(id)) && made;
  }).finally(() => load.stop());
  expect(pages.length).toBe(new Set(pages).size);
  expect(load.failures).toEqual([]);
});
