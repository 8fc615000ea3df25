import { agent, blackboardStore } from "@khala/server";
import { eventually } from "@khala/test-support/kit/eventually";
import { testDatabase } from "@khala/test-support/postgres/test_database";
import { BACKENDS, backendSettings } from "@khala/test-support/servers/backends";
import { startBoard } from "@khala/test-support/servers/board_server";
import { ADA, EVE } from "@khala/test-support/servers/board_servers";
import { describe, expect, test } from "vitest";

describe.each(BACKENDS)("on %s", (backend) => {
  test("publish, get, list and list_by_type work, also after a restart", async () => {
    await using store = await testDatabase();
    const settings = await backendSettings(backend);
    const shout = agent("shout", {
      consumes: "Word",
      run: ({ artifact }) => ({ type: "Shout", payload: String(artifact.payload).toUpperCase() }),
    });
    let id: string;
    {
      await using server = await startBoard(store.url, { agents: [shout] }, settings);
      const board = blackboardStore(server.khala.blackboard, ADA);
      id = await board.publish({ type: "Word", payload: "hello" });
      await eventually(
        "the agent has answered",
        async () => (await board.list_by_type("Shout")).length === 1,
      );
    }
    await using server = await startBoard(store.url, { agents: [shout] }, settings);
    const board = blackboardStore(server.khala.blackboard, ADA);
    expect(await board.get(id)).toMatchObject({ id, type: "Word", payload: "hello", org_id: "acme" });
    expect((await board.list()).map(({ payload }) => payload)).toEqual(["HELLO", "hello"]);
    expect(await board.list_by_type("Other")).toEqual([]);
    const stranger = blackboardStore(server.khala.blackboard, EVE);
    expect([await stranger.get(id), await stranger.list()]).toEqual([undefined, []]);
  });
});

test("the lists return the whole window, also a larger one", async () => {
  await using store = await testDatabase();
  await using server = await startBoard(store.url, {}, { FLOCK_INDEX_WINDOW: "10002" });
  const { blackboard } = server.khala;
  const thousand = Array.from({ length: 1_000 }, () => ({ type: "Note", payload: null }));
  for (let i = 0; i < 10; i++) await blackboard.publish(ADA, thousand);
  await blackboard.publish(ADA, thousand.slice(0, 3));
  const board = blackboardStore(blackboard, ADA);
  expect(await board.list()).toHaveLength(10_002);
  expect(await board.list_by_type("Note")).toHaveLength(10_002);
});
