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

  test("after any attach, detach, crash or trim, each transcript equals the log", () =>
    checkConversations(backend, logs));
});

test.for(stores)(
  "after any history of approvals, branches, posts, kills and lost logs on %s, every device shows what the tables have, and no tool ran again",
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
