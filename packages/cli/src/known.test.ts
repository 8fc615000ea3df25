import { expect, test } from "vitest";
import { Known, type Update } from "./known.ts";

const topic = "app.things";

function told(): { known: Known; lines: string[] } {
  const lines: string[] = [];
  const known = new Known(({ op, doc_key, doc_version }) => lines.push(`${op} ${doc_key} ${doc_version}`));
  return { known, lines };
}

function update(doc_key: string, version: number, op: Update["op"] = "upsert"): Update {
  return { topic, doc_key, doc_version: String(version), op };
}

test("nothing is told twice, and no version after a newer one", () => {
  const { known, lines } = told();
  for (const version of [1, 1, 12, 9, 13]) known.take(update("a:1", version));
  expect(lines).toEqual(["upsert a:1 1", "upsert a:1 12", "upsert a:1 13"]);
});

test("a list tells what is newer, and the end of what it does not have any more", () => {
  const { known, lines } = told();
  for (const key of ["a:1", "a:2", "a:3"]) known.take(update(key, 2));
  known.take(update("a:3", 3, "delete"));
  lines.length = 0;
  known.replace(topic, [{ key: "a:1", version: "4", payload: {}, hash: "" }]);
  expect(lines).toEqual(["delete a:2 2", "upsert a:1 4"]);
  known.replace(topic, [{ key: "a:1", version: "4", payload: {}, hash: "" }]);
  expect(lines).toHaveLength(2);
});
