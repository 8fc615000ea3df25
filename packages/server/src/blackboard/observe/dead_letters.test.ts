import { makeTestArtifact, makeTestTask } from "@khala/test-support/conformance/board/support";
import { testViewer } from "@khala/test-support/kit/viewer";
import { expect, test } from "vitest";
import type { Artifact } from "../model/artifact.ts";
import type { DeadLetter } from "../model/task.ts";
import type { Caller } from "../plane.ts";
import { openDeadLetters } from "./dead_letters.ts";
import type { Replays } from "./replays.ts";

const failure = { class: "Error", message: "no", kind: "fatal" } as const;
const letter = (id: string, org?: string, given: Partial<Artifact> = {}): DeadLetter => ({
  id,
  agent: "a",
  attempts: 1,
  failed_at: "2026-01-01T00:00:00.000Z",
  origin: "here",
  failure,
  ...(org === undefined
    ? { raw: "c2VjcmV0" }
    : { task: makeTestTask("a", { ...makeTestArtifact(given), org_id: org }) }),
});

const hidden = { visibility: { kind: "private", agents: ["a"] }, produced_by: "user:bob" };
const letters = [letter("mine", "acme"), letter("theirs", "other"), letter("unreadable")];
const replayed: string[] = [];
const replays: Omit<Replays, "count"> = {
  replay: async (_, { id }) => ({ replay_id: id, status: "replayed" }),
  async replayMany(_, pages) {
    for await (const page of pages) replayed.push(...page.map(({ id }) => id));
    return { replayed: replayed.length, already_replayed: 0 };
  },
  statesOf: async () => new Map([["mine", "r1"]]),
};
const orgOf = ({ task }: DeadLetter) => task?.artifacts[0].org_id ?? "";
const looks: number[] = [];
const board = {
  deadLetters: async (_: string, { orgs }: { readonly orgs: readonly string[] }) => ({
    deadLetters: letters.filter((each) => orgs.includes(orgOf(each))),
  }),
  async deadLettersById(_: string, orgs: readonly string[], ids: readonly string[]) {
    looks.push(ids.length);
    return ids.flatMap((id) => letters.find((each) => each.id === id && orgs.includes(orgOf(each))) ?? []);
  },
};
const desk = openDeadLetters(board, replays, () => {});
const ada = testViewer();

test("an org sees its own dead letters only, and the platform also undecodable ones", async () => {
  const seen = async (caller: Caller) =>
    (await desk.list(caller, "a", { limit: 10 })).deadLetters.map(({ id }) => id);
  expect(await seen(ada)).toEqual(["mine"]);
  expect(await seen({ ...ada, scopes: new Set(["blackboard:read", "platform"]) })).toEqual([
    "mine",
    "unreadable",
  ]);
  expect(await desk.get(ada, "a", "unreadable")).toBeUndefined();
  expect(await desk.get(ada, "a", "theirs")).toBeUndefined();
  await expect(desk.replay(ada, "a", "theirs")).rejects.toMatchObject({ code: "not_found" });
});

test("a caller who may not read a private artifact can replay its dead letter, but not edit it", async () => {
  const board = {
    deadLetters: async () => ({ deadLetters: [] }),
    deadLettersById: async () => [letter("private", "acme", hidden)],
  };
  const own = openDeadLetters(board, replays, () => {});
  const replay = (caller: Caller, edit?: { payload: string }) => own.replay(caller, "a", "private", edit);
  expect(await replay(ada)).toMatchObject({ status: "replayed" });
  await expect(replay(ada, { payload: "forged" })).rejects.toMatchObject({ code: "not_found" });
  expect(await replay({ ...ada, subject: "bob" }, { payload: "mine" })).toMatchObject({ status: "replayed" });
});

test("a dead letter shows whether it was replayed", async () => {
  expect(await desk.get(ada, "a", "mine")).toMatchObject({ id: "mine", replay_id: "r1" });
});

test("replaying all, or by ids, skips those of another org", async () => {
  await desk.replayAll(ada, "a", {});
  await desk.replayAll(ada, "a", { ids: ["theirs", "mine", "nowhere"] });
  expect(replayed).toEqual(["mine", "mine"]);
});

test("looks up ids in batches, and replays a repeated id once", async () => {
  looks.length = 0;
  replayed.length = 0;
  const ids = Array.from({ length: 240 }, (_, i) => `nowhere ${i}`);
  await desk.replayAll(ada, "a", { ids: ["mine", ...ids, "mine"] });
  expect(looks).toEqual([100, 100, 41]);
  expect(replayed).toEqual(["mine"]);
});
