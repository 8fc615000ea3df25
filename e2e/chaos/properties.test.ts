import { afterAll, beforeAll, describe, test } from "vitest";
import { backends as boards, checkBoard } from "../blackboard/support/board_property.ts";
import type { OpenedBoard } from "../blackboard/support/board_world.ts";
import { checkClient } from "../client/support/client_property.ts";
import { ClientStage } from "../client/support/client_world.ts";
import { checkConversations, backends as logs } from "../conversations/support/conversation_property.ts";
import { checkHistories, stores } from "../conversations/support/history_property.ts";
import { checkSync } from "../sync/support/sync_property.ts";

// The properties of `npm test`, with a random seed and more histories.

test("sync: every witness has what the events say", () => checkSync({ search: true }));

test("client: every client ends with the server's documents", async () => {
  await using stage = await ClientStage.open();
  await checkClient(stage, { search: true });
});

test.for(logs)("conversations: each transcript is the log's on %s", async ([name, open]) => {
  await using opened = await open();
  await checkConversations(name, opened, { search: true });
});

test.for(stores)("histories: every device shows the tables' content on %s", async ([name, open]) => {
  await using store = await open();
  await checkHistories(name, store, { search: true });
});

describe.each(boards)("board on $name", (backend) => {
  let board: OpenedBoard;
  beforeAll(async () => {
    board = await backend.open();
  });
  afterAll(() => board?.[Symbol.asyncDispose]());

  test("ends each task once, in the order of its key", () => checkBoard(backend, board, { search: true }));
});
