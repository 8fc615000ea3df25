import { afterAll, beforeAll, describe, test } from "vitest";
import { backends, checkConversations } from "./support/conversation_property.ts";
import type { TwoLogs } from "./support/conversation_world.ts";

describe.each(backends)("on %s", (backend, open) => {
  let logs: TwoLogs;
  beforeAll(async () => {
    logs = await open();
  });
  afterAll(() => logs?.[Symbol.asyncDispose]());

  test("after any attach, detach, crash or trim, each transcript equals the log", () =>
    checkConversations(backend, logs));
});
