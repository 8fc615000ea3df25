import { agent, blackboardStore } from "@khala/server";
import { expect, test } from "vitest";
import { startBoard } from "./support/board_server.ts";
import { eventually } from "./support/eventually.ts";
import { testDatabase } from "./support/postgres.ts";

test("the four calls that the seed names: publish, get, list and list_by_type, after a restart too", async () => {
  await using store = await testDatabase();
  const shout = agent("shout", {
    consumes: "Word",
    run: ({ artifact }) => ({ type: "Shout", payload: String(artifact.payload).toUpperCase() }),
  });
  const ada = { org: "acme", subject: "ada" };
  let id: string;
  {
    await using server = await startBoard(store.url, { agents: [shout] });
    const board = blackboardStore(server.khala.blackboard, ada);
    id = await board.publish({ type: "Word", payload: "hello" });
    await eventually("the agent has answered", async () => (await board.list_by_type("Shout")).length === 1);
  }
  await using server = await startBoard(store.url, { agents: [shout] });
  const board = blackboardStore(server.khala.blackboard, ada);
  expect(await board.get(id)).toMatchObject({ id, type: "Word", payload: "hello", org_id: "acme" });
  expect((await board.list()).map(({ payload }) => payload)).toEqual(["HELLO", "hello"]);
  expect(await board.list_by_type("Other")).toEqual([]);
  const stranger = blackboardStore(server.khala.blackboard, { org: "other", subject: "eve" });
  expect([await stranger.get(id), await stranger.list()]).toEqual([undefined, []]);
});
