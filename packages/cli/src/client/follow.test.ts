import { expect, test } from "vitest";
import { NewestVersions, type Update } from "./follow.ts";

const topic = "app.things";

function collecting(): { versions: NewestVersions; lines: string[] } {
  const lines: string[] = [];
  const versions = new NewestVersions(({ op, doc_key, doc_version }) =>
    lines.push(`${op} ${doc_key} ${doc_version}`),
  );
  return { versions, lines };
}

function update(doc_key: string, version: number, op: Update["op"] = "upsert"): Update {
  return { topic, doc_key, doc_version: String(version), op };
}

test("emits each version once, and no version after a newer one", () => {
  const { versions, lines } = collecting();
  for (const version of [1, 1, 12, 9, 13]) versions.accept(update("a:1", version));
  expect(lines).toEqual(["upsert a:1 1", "upsert a:1 12", "upsert a:1 13"]);
});

test("a list emits newer versions, and deletes documents missing from it", () => {
  const { versions, lines } = collecting();
  for (const key of ["a:1", "a:2", "a:3"]) versions.accept(update(key, 2));
  versions.accept(update("a:3", 3, "delete"));
  lines.length = 0;
  versions.replace(topic, [{ key: "a:1", version: "4", payload: {}, hash: "" }]);
  expect(lines).toEqual(["delete a:2 2", "upsert a:1 4"]);
  versions.replace(topic, [{ key: "a:1", version: "4", payload: {}, hash: "" }]);
  expect(lines).toHaveLength(2);
});
