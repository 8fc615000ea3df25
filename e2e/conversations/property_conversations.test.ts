import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { backends, checkConversations } from "./support/conversation_property.ts";
import type { TwoLogs } from "./support/conversation_world.ts";
import { checkHistories, stores } from "./support/history_property.ts";

describe.each(backends)("on %s", (backend, open) => {
  let logs: TwoLogs;
  beforeAll(async () => {
    logs = await open();
  });
  afterAll(() => logs?.[Symbol.asyncDispose]());

  test("each transcript equals the log after any attach, detach, crash or trim", () =>
    checkConversations(backend, logs));
});

test.for(stores)(
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
