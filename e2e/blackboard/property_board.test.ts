import { afterAll, beforeAll, describe, test } from "vitest";
import { backends, checkBoard } from "./support/board_property.ts";
import type { OpenedBoard } from "./support/board_world.ts";

// `npm test` has no other backend than PostgreSQL, and runs these histories on it: where there is another, it alone is left.
const others = backends.filter(({ name }) => name !== "Postgres");

describe.each(others.length > 0 ? others : backends)("on $name", (backend) => {
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
