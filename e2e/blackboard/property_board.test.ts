import { afterAll, beforeAll, describe, test } from "vitest";
import { backends, checkBoard } from "./support/board_property.ts";
import type { OpenedBoard } from "./support/board_world.ts";

describe.each(backends)("on $name", (backend) => {
  let board: OpenedBoard;
  beforeAll(async () => {
    board = await backend.open();
  }, 120_000);
  afterAll(() => board?.[Symbol.asyncDispose](), 120_000);

  test(
    "ends each task once and in key order, through publications, failures, pauses, stops and starts",
    {
      timeout: 300_000,
    },
    () => checkBoard(backend, board),
  );
});
