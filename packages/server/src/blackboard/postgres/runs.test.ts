import { makeTestArtifact, range } from "@khala/testing/conformance/board/support";
import { expect, test } from "vitest";
import { runColumns } from "./runs.ts";

const made = (orgs: readonly string[]) => orgs.map((org_id) => makeTestArtifact({ org_id }));
const idsOf = (text: string) => text.slice(1, -1).split(",");

test("what an org publishes together is one run, named by its last", () => {
  const all = made(["acme", "acme", "acme"]);
  expect(runColumns(all, [1, 3, 4])).toEqual([[4], [`{${all.map(({ id }) => id).join()}}`]]);
});

test("each org has runs of its own", () => {
  const all = made(["acme", "other", "acme", "other", "third"]);
  const [lasts, ids] = runColumns(all, range(1, 5));
  expect(lasts).toEqual([3, 4, 5]);
  expect(ids!.map(idsOf)).toEqual([[all[0]!.id, all[2]!.id], [all[1]!.id, all[3]!.id], [all[4]!.id]]);
});

test("a run is no longer than a row can bear, and the next begins behind it", () => {
  const all = made(range(1, 150).map(() => "acme"));
  const [lasts, ids] = runColumns(all, range(1, 150));
  expect(lasts).toEqual([64, 128, 150]);
  expect(ids!.flatMap(idsOf)).toEqual(all.map(({ id }) => id));
});

test("later versions, and ids in another order than that of publication, are listed alone", () => {
  const [first, second] = made(["acme", "acme"]);
  expect(runColumns([first!, { ...second!, version: 2 }], [1, 2])).toEqual([null, null]);
  expect(runColumns([first!, second!], [2, 1])).toEqual([null, null]);
});
