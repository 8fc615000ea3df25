import { afterAll, beforeAll, describe, test } from "vitest";
import { backends, checkConversations } from "./support/conversation_property.ts";
import type { TwoLogs } from "./support/conversation_world.ts";

describe.each(backends)("on %s", (backend, open) => {
  let logs: TwoLogs;
  beforeAll(async () => {
    logs = await open();
  });
  afterAll(() => logs?.[Symbol.asyncDispose]());

  test("whoever attaches, detaches, crashes or is trimmed away, each transcript is the log's", () =>
    checkConversations(backend, logs));
});
