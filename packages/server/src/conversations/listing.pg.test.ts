import { until } from "@khala/test-support/kit/until";
import { testViewer } from "@khala/test-support/kit/viewer";
import { expect, test } from "vitest";
import type { OwnQuery } from "./plane.ts";
import { engineOf, Servers } from "./test_support.ts";

const ada = testViewer();
const bob = testViewer({ subject: "bob" });
const engine = engineOf(async function* ({ message }) {
  if (message.includes("fail")) throw new Error("It fails.");
  yield { text_delta: { text: `Answer about ${message}` } };
});

test("finds conversations by words of their messages and status of their run, page by page", async () => {
  await using servers = await Servers.open();
  const { plane } = await servers.start({ engine });
  const ask = async (who: typeof ada, convId: string, message: string) => {
    const { run_id } = await plane.chat(who, { convId, message });
    await until("the end", async () => (await plane.state(who, convId)).last_run?.run_id === run_id);
  };
  const list = async (who: typeof ada, query: Partial<OwnQuery>) =>
    (await plane.list(who, { after: "", limit: 10, ...query })).conversations.map(({ conv_id }) => conv_id);

  await ask(ada, "c1", "Weather in Bern");
  await ask(ada, "c2", "Otters and the sea");
  await ask(ada, "c3", "fail about otters");
  await ask(bob, "c4", "Otters of bob");
  await ask(bob, "c5", "Otters that are shared");
  await plane.putParticipant(bob, "c5", { subject: ada.subject, role: "viewer" });

  expect(await list(ada, { q: "otters" })).toEqual(["c5", "c3", "c2"]);
  expect(await list(ada, { q: "OTT sea" })).toEqual(["c2"]);
  expect(await list(ada, { q: "answer" })).toEqual(["c5", "c2", "c1"]);
  expect(await list(ada, { q: "otters", status: ["failed"] })).toEqual(["c3"]);
  expect(await list(ada, { status: ["finished"] })).toEqual(["c5", "c2", "c1"]);
  expect(await list(ada, { status: ["failed", "stopped"] })).toEqual(["c3"]);
  expect(await list(ada, { status: ["running"] })).toEqual([]);
  expect(await list(ada, { q: "nothing' | \\ :*" })).toEqual([]);
  expect(await list(bob, { q: "weather" })).toEqual([]);
  const { conversations, next } = await plane.list(ada, { after: "", limit: 2, q: "otters" });
  expect(conversations).toHaveLength(2);
  expect(await list(ada, { q: "otters", after: next! })).toEqual(["c2"]);
});
