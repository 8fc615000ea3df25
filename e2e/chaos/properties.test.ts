import { afterAll, beforeAll, describe, test } from "vitest";
import { backends as boards, checkBoard } from "../blackboard/support/board_property.ts";
import type { OpenedBoard } from "../blackboard/support/board_world.ts";
import { checkClient } from "../client/support/client_property.ts";
import { ClientStage } from "../client/support/client_world.ts";
import { checkConversations, backends as logs } from "../conversations/support/conversation_property.ts";
import { checkSync } from "../sync/support/sync_property.ts";

// The properties of `npm test`, with a random seed and more histories. A search takes as long as --minutes asks for.
const MINUTES = Number(process.env.KHALA_CHAOS_MINUTES ?? 30);
const timeout = (MINUTES + 10) * 60_000;

test("sync: every witness holds what the events say", { timeout }, () => checkSync({ search: true }));

test("client: clients end up with what the server has", { timeout }, async () => {
  await using stage = await ClientStage.open();
  await checkClient(stage, { search: true });
});

test.for(logs)("conversations: each transcript is the log's on %s", { timeout }, async ([name, open]) => {
  await using opened = await open();
  await checkConversations(name, opened, { search: true });
});

describe.each(boards)("board on $name", (backend) => {
  let board: OpenedBoard;
  beforeAll(async () => {
    board = await backend.open();
  });
  afterAll(() => board?.[Symbol.asyncDispose]());

  test("each task ends once, in the order of its key", { timeout }, () =>
    checkBoard(backend, board, { search: true }),
  );
});
