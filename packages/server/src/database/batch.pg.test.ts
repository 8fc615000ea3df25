import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import fc from "fast-check";
import { afterAll, beforeAll, expect, test } from "vitest";

let shared: TestDatabase;
beforeAll(async () => {
  shared = await testDatabase();
});
afterAll(() => shared[Symbol.asyncDispose]());

/** Everything that some format escapes. PostgreSQL has no NUL in texts. */
const texts = fc.array(
  fc.oneof(
    fc.string({ unit: fc.constantFrom('"', "\\", "\n", "\t", "\u0001", "{", ",", "n", "ü", "😀", "\u2028") }),
    fc.json(),
    fc.string({ unit: "binary" }).map((text) => text.replaceAll("\0", "").toWellFormed()),
  ),
);

test("passes texts in arrays unchanged", async () => {
  await fc.assert(
    fc.asyncProperty(texts, async (all) => {
      const text = "SELECT array_to_json($1::text[])::text AS said";
      const [rows] = await shared.database.transaction([{ name: "texts", text, values: [all] }]);
      expect(JSON.parse(rows![0]!.said as string)).toEqual(all);
    }),
    { numRuns: 200 },
  );
});
