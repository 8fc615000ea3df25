import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import fc from "fast-check";
import pg from "pg";
import { afterAll, beforeAll, expect, test } from "vitest";
import { Batch } from "./batch.ts";

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

test("a batch that cannot be sent as a whole fails, and nothing of it is committed", async () => {
  await shared.database.query({ text: "CREATE TABLE parts (n int)" });
  const client = new pg.Client({ connectionString: shared.url });
  client.on("error", () => {});
  await client.connect();
  const closed = new Promise((resolve) => client.once("end", resolve));
  const { connection } = client as unknown as { connection: { bind(portal: object): void } };
  const bind = connection.bind.bind(connection);
  let binds = 0;
  connection.bind = (portal) => {
    if (++binds === 2) throw new Error("too large");
    bind(portal);
  };
  const statements = [1, 2].map((n) => ({ text: "INSERT INTO parts VALUES ($1)", values: [n] }));
  const batch = new Batch(statements, pg.types);
  client.query(batch);
  await expect(batch.results).rejects.toThrow("too large");
  // Without its Sync, the first half would be committed with the next statements: the connection must not have any.
  await closed;
  expect(await shared.database.query({ text: "SELECT n FROM parts" })).toEqual([]);
});
