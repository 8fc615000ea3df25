import { setImmediate } from "node:timers/promises";
import { ManualClock } from "@khala/test-support/kit/manual_clock";
import { expect, test } from "vitest";
import { LogLookup } from "./log_lookup.ts";
import type { LogReader, LogRecord, Position } from "./log_reader.ts";

/** A log in memory that has a record at every offset. */
function reader(): LogReader {
  let positions: readonly Position[] = [];
  return {
    assign(next) {
      positions = next;
    },
    async poll() {
      const records = positions.map(
        ({ topic, partition, offset }): LogRecord => ({
          topic,
          partition,
          at: offset,
          offset: String(offset),
          key: null,
          value: null,
          timestamp: "0",
        }),
      );
      return { records, ends: [] };
    },
    async close() {},
  };
}

test("answers a lookup that arrives just after another one was answered", async () => {
  const lookup = new LogLookup({ clock: new ManualClock() }, async () => reader());
  const from = { topic: "t", partition: 0, offset: 7 };
  for (let turns = 0; turns < 10; turns++) {
    await lookup.range(from, 8);
    for (let turn = 0; turn < turns; turn++) await null;
    const asked = lookup.range(from, 8).then((records) => records.map(({ at }) => at));
    expect(await Promise.race([asked, setImmediate("nothing")]), `after ${turns}`).toEqual([7]);
  }
  await lookup.stop();
});
