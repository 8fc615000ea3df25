import { makeTestArtifact, makeTestTask } from "@khala/test-support/conformance/board/support";
import { testContext } from "@khala/test-support/kit/context";
import { testViewer } from "@khala/test-support/kit/viewer";
import { testDatabase } from "@khala/test-support/postgres/test_database";
import { expect, test } from "vitest";
import { rowOf } from "../publish/outbox.ts";
import { openSetAsideItems, setAsideStatement } from "./set_aside_items.ts";

test("lists and retries a task with half a character, as a record of another program may have it", async () => {
  await using own = await testDatabase();
  const { database } = own;
  const items = openSetAsideItems(database, await testContext());
  const body = makeTestTask("editor", makeTestArtifact({ payload: "half a smile: \ud83d" }));
  const item = { loop: "board outbox", ...rowOf({ kind: "task", body }), item: body.id, agent: body.agent };
  await database.query(setAsideStatement(item, new Error("no such agent")));

  const operator = testViewer({ scopes: ["ops"] });
  const [listed] = await items.list(operator, { after: "", limit: 10 });
  expect(listed).toMatchObject({ item: body.id, agent: "editor", error: "no such agent" });
  await items.retry(operator, listed!.id!);
  expect(await database.query({ text: "SELECT body FROM runtime.board_outbox" })).toEqual([{ body }]);
  await items.stop();
});
