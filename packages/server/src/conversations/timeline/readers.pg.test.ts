import { testContext } from "@khala/test-support/kit/context";
import { until } from "@khala/test-support/kit/until";
import { testDatabase } from "@khala/test-support/postgres/test_database";
import { expect, test } from "vitest";
import { openPostgresLog } from "../log/postgres/postgres_log.ts";
import { conversationMetrics } from "../metrics.ts";
import { entryText } from "../runs/run_log.ts";
import { openReaders } from "./readers.ts";

const stream = "chat:c";
const conversation = { org: "acme", convId: "c", generation: 0n, logName: stream };

// A restore under running servers, and then as many appends as were lost: what is known of the log is the same again.
for (const found of ["by polling", "by the wakeup of a later append"])
  test(`a reader ends when its last entry was replaced, found ${found}`, async () => {
    await using own = await testDatabase();
    const context = await testContext();
    const options = { ttlMs: 3_600_000, wakeups: { send() {} } };
    const writer = openPostgresLog(own.database, context, options);
    const log = openPostgresLog(own.database, context, options);
    const never = 3_600_000;
    const readers = openReaders(context, {
      log,
      metrics: conversationMetrics(context.telemetry.meter),
      serverId: "s",
      isDeleted: async () => false,
      // Without it, entries beyond memory are never compared.
      recentBytes: 0,
      graceMs: never,
      pollMs: found === "by polling" ? 20 : never,
      bookmarkMs: never,
    });
    const say = (text: string) => writer.append(stream, [entryText("run", { text_delta: { text } })]);
    try {
      await say("kept");
      await say("lost");
      const { reader } = await readers.acquire(conversation);
      const ended: string[] = [];
      reader.goLive({ deliver() {}, ended: (reason) => ended.push(reason) });
      await own.database.transaction([
        { text: "UPDATE runtime.log_entries SET time = time - 1 WHERE seq = 2" },
        { text: "UPDATE runtime.log_streams SET time = time - 1" },
      ]);
      if (found !== "by polling") {
        await say("the next");
        log.onWakeup(stream);
      }
      await until("its followers are notified", () => ended.length > 0);
      expect(ended).toEqual(["trimmed"]);
    } finally {
      await readers.stop();
    }
  });
