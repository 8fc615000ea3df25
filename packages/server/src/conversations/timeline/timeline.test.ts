import fc from "fast-check";
import { expect, test } from "vitest";
import { eventFrame, helloFrame, readEntry, runOf } from "./timeline.ts";

const entry = (data: object) => ({ seq: 12n, time: 1_700_000_000_000, data: JSON.stringify(data) });

test("a frame has the entry's sequence, the cursor after it, the run and the event", () => {
  const event = { text_delta: { message_id: "m", text: 'a "quoted" line\nü' } };
  const frame = eventFrame("c1", "e1", entry({ run_id: "r", event }));
  expect(JSON.parse(frame.json)).toEqual({
    type: "event",
    seq: "12",
    cursor: "e1.1700000000000-12",
    run_id: "r",
    event,
  });
});

test.each([
  ["without a run", {}],
  ["with an empty one", { run_id: "" }],
  ["with the zero UUID", { run_id: "00000000-0000-0000-0000-000000000000" }],
])("an event %s is forwarded, and belongs to no run", (_, run) => {
  const event = { custom: { name: "search_result", data: { hits: 2 } } };
  expect(readEntry(entry({ ...run, event }))).toEqual({ seq: 12n, runId: "", event });
  expect(JSON.parse(eventFrame("c1", "e1", entry({ ...run, event })).json)).toMatchObject({
    run_id: "",
    event,
  });
});

test("encodes a frame once per kind of socket, with the same content", () => {
  const frame = helloFrame("c1", "e1.0-0", null, []);
  expect(frame.plain).toBe(frame.plain);
  expect(frame.phoenix).toBe(frame.phoenix);
  const text = String(frame.phoenix.bytes.subarray(2));
  expect(JSON.parse(text)).toEqual([null, null, "conversation:c1", "frame", JSON.parse(frame.json)]);
});

const ENDS = ["run_finished", "run_failed", "run_stopped"];

test("a frame has the event as it was read, and the run is known without parsing it", () => {
  const text = fc.string({ unit: "binary" });
  const event = fc.oneof(
    fc.record({ text_delta: fc.record({ message_id: fc.uuid(), text }) }),
    fc.record({ custom: fc.record({ name: text, data: fc.jsonValue() }) }),
    ...ENDS.map((kind) => fc.constant({ [kind]: {} })),
    fc.constant({}),
  );
  const runId = fc.oneof(
    fc.uuid(),
    fc.constant(""),
    fc.constant("00000000-0000-0000-0000-000000000000"),
    text,
  );
  fc.assert(
    fc.property(runId, event, (run_id, event) => {
      const given = entry({ run_id, event });
      const read = readEntry(given);
      expect(JSON.parse(eventFrame("c1", "e1", given).json)).toEqual(
        JSON.parse(
          JSON.stringify({
            type: "event",
            seq: "12",
            cursor: "e1.1700000000000-12",
            run_id: read.runId,
            event: read.event,
          }),
        ),
      );
      expect(runOf(given)).toMatchObject({ runId: read.runId, ends: ENDS.some((kind) => kind in event) });
    }),
  );
});
