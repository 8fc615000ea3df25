import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { backends, checkConversations } from "./support/conversation_property.ts";
import type { TwoLogs } from "./support/conversation_world.ts";
import { checkHistories, stores } from "./support/history_property.ts";

/** `npm test` has no other backend than PostgreSQL, and runs these histories on it: where there is another, it alone is left. */
function left<T>(all: [name: string, open: T][]): [name: string, open: T][] {
  const others = all.filter(([name]) => name !== "postgres");
  return others.length > 0 ? others : all;
}

describe.each(left(backends))("on %s", (backend, open) => {
  let logs: TwoLogs;
  beforeAll(async () => {
    logs = await open();
  });
  afterAll(() => logs?.[Symbol.asyncDispose]());

  test("each transcript equals the log after any attach, detach, crash or trim", () =>
    checkConversations(backend, logs));
});

test.for(left(stores))(
  "approvals, branches, posts, kills and lost logs on %s keep devices equal to the tables, and repeat no tool",
  async ([name, open]) => {
    await using store = await open();
    const done = await checkHistories(name, store);
    // What never worked proves nothing.
    for (const what of [
      "send",
      "regenerate",
      "edit",
      "choose",
      "decide",
      "editQueued",
      "post",
      "kill",
      "lose",
    ])
      expect(done.get(what) ?? 0, what).toBeGreaterThan(0);
  },
);
