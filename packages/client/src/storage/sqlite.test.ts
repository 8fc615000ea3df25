import { DatabaseSync } from "node:sqlite";
import { expect, test } from "vitest";
import { puts, range } from "./conformance_support.ts";
import { sqlite } from "./sqlite.ts";

const cursor = { epoch: "e", watermark: "1" };

test("reports a full disk, and keeps the stored data", async () => {
  const database = new DatabaseSync(":memory:");
  const storage = sqlite(database);
  await storage.commit("s", "t", { replace: true, put: puts(["a"], 1), remove: [], cursor });
  database.exec("PRAGMA max_page_count = 8");
  const put = puts(
    range(2_000).map((n) => `k${n}`),
    2,
  );
  const full = storage.commit("s", "t", {
    replace: true,
    put,
    remove: [],
    cursor: { ...cursor, watermark: "2" },
  });
  await expect(full).rejects.toMatchObject({ code: "limit_exceeded" });
  expect(await storage.load("s", "t")).toEqual({ documents: puts(["a"], 1), cursor });
});

test("does not join or roll back a transaction of the app", async () => {
  const database = new DatabaseSync(":memory:");
  const storage = sqlite(database);
  await storage.commit("s", "t", { replace: true, put: [], remove: [], cursor });
  database.exec("CREATE TABLE own (n)");
  database.exec("BEGIN");
  database.exec("INSERT INTO own VALUES (1)");
  await expect(
    storage.commit("s", "t", { after: cursor, put: [], remove: [], cursor }),
  ).rejects.toMatchObject({
    code: "unavailable",
  });
  database.exec("COMMIT");
  expect(database.prepare("SELECT n FROM own").all()).toHaveLength(1);
  await storage.commit("s", "t", { replace: true, put: puts(["a"], 1), remove: [], cursor });
  expect((await storage.load("s", "t"))?.documents).toHaveLength(1);
});

test("no statement of the app runs between the steps of a commit", async () => {
  const database = new DatabaseSync(":memory:");
  const storage = sqlite(database);
  database.exec("CREATE TABLE own (n)");
  const storing = storage.commit("s", "t", {
    replace: true,
    put: puts(
      range(3_000).map((n) => `k${n}`),
      1,
    ),
    remove: [],
    cursor,
  });
  for (const n of range(50)) {
    database.exec("BEGIN");
    database.exec(`INSERT INTO own VALUES (${n})`);
    database.exec("ROLLBACK");
    await Promise.resolve();
  }
  await storing;
  expect((await storage.load("s", "t"))?.documents).toHaveLength(3_000);
});
