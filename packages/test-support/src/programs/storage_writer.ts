import { DatabaseSync } from "node:sqlite";
import { asyncStorage, sqlite } from "@khala/client/storage";
import { FileAsyncStorage } from "../../../client/src/storage/test_support.ts";

// Commits until it is killed, and prints each finished commit. All documents are of the same commit as the cursor.
const [driver, place] = process.argv.slice(2) as [string, string];
const storage =
  driver === "sqlite" ? sqlite(new DatabaseSync(place)) : asyncStorage(new FileAsyncStorage(place));
let after = (await storage.load("scope", "topic"))?.cursor;
for (let n = Number(after?.watermark ?? 0) + 1; ; n++) {
  const put = ["a", "b", "c", "d"].map((key) => ({ key, version: String(n), hash: "h", payload: { n } }));
  const change = { put, remove: [], cursor: { epoch: "e", watermark: String(n) } };
  const isWhole = !after || n % 7 === 0;
  await storage.commit(
    "scope",
    "topic",
    isWhole ? { replace: true, ...change } : { after: after!, ...change },
  );
  after = change.cursor;
  process.stdout.write(`${n}\n`);
}
