import { KhalaError } from "@khala/contracts";
import { beforeEach, expect, test } from "vitest";
import { settled } from "../conversation/test_support.ts";
import { handClient } from "../react/test_support.ts";

const TOPIC = "approvals";

let hand: ReturnType<typeof handClient>;
let changes = 0;
beforeEach(() => {
  hand = handClient();
  changes = 0;
});

/** Lets the plane notify its listeners. */
async function told(work?: unknown): Promise<void> {
  await work;
  await settled();
  hand.environment.pass(20);
  await settled();
}
const follow = () => hand.client.approvals.subscribe(() => changes++);
/** The requests so far; all of them are of the inbox. */
const requests = () => hand.http.asked.map(({ method, path }) => `${method} ${path}`).length;
async function answer(...ids: string[]): Promise<void> {
  hand.http.last.answer({ approvals: ids.map((id) => ({ id })) });
  await told();
}
const shown = () => hand.client.approvals.state().approvals?.map(({ id }) => id);

test("reads the inbox when its topic changes, and does not poll", async () => {
  const { approvals } = hand.client;
  expect(approvals.state()).toEqual({ approvals: undefined, error: undefined });
  const stop = follow();
  await told();
  expect(hand.http.last).toMatchObject({ method: "GET", path: "/approvals" });
  await answer("a");
  expect(shown()).toEqual(["a"]);
  expect(approvals.state()).toBe(approvals.state());
  // Something may have been decided before the topic was live.
  await told(hand.topics.replace(TOPIC, { "approval:a": {} }));
  expect(requests()).toBe(2);
  await answer("a");
  hand.environment.pass(3_600_000);
  await told();
  expect(requests()).toBe(2);
  await told(hand.topics.set(TOPIC, "approval:a", 2, undefined));
  expect(requests()).toBe(3);
  await answer();
  expect(shown()).toEqual([]);
  expect(changes).toBe(3);
  stop();
  await told(hand.topics.set(TOPIC, "approval:b", 1, {}));
  expect(requests()).toBe(3);
});

test("changes during a request are in one more request", async () => {
  follow();
  await told();
  await told(hand.topics.replace(TOPIC, {}));
  const first = hand.http.last;
  for (const id of ["a", "b", "c"]) await told(hand.topics.set(TOPIC, `approval:${id}`, 1, { id }));
  expect(requests()).toBe(1);
  first.answer({ approvals: [] });
  await told();
  expect(requests()).toBe(2);
  await answer("a", "b", "c");
  expect(requests()).toBe(2);
  expect(shown()).toEqual(["a", "b", "c"]);
});

test("without the topic it is read once, and on demand; a failure keeps the last answer", async () => {
  const { approvals } = hand.client;
  follow();
  await answer("a");
  for (const sink of hand.topics.sinks(TOPIC)) sink.phase("forbidden", new KhalaError("forbidden_topic", ""));
  await told();
  expect(requests()).toBe(1);
  const refreshed = approvals.refresh();
  hand.http.last.refuse(new KhalaError("unavailable", "Not now."));
  await refreshed;
  expect(requests()).toBe(2);
  expect(approvals.state()).toMatchObject({ approvals: [{ id: "a" }], error: { code: "unavailable" } });
});

test("several subscribers share one request", async () => {
  const stops = [follow(), follow()];
  await answer();
  expect(requests()).toBe(1);
  expect(changes).toBe(2);
  for (const stop of stops) stop();
  await told(hand.topics.replace(TOPIC, { "approval:a": {} }));
  expect(requests()).toBe(1);
});
