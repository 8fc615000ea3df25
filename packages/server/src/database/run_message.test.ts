import { expect, test } from "vitest";
import { runMessage } from "./run_message.ts";

test("a message binds texts, bytes and nulls to a statement, then describes and executes it", () => {
  const message = runMessage("ab", ["é", null, Buffer.from([0, 255])]);
  const bind = [
    ..."\0ab\0",
    // The formats of three values, then the values with their lengths, then one format for all columns.
    ..."\0\x03\0\0\0\0\0\x01",
    ..."\0\x03\0\0\0\x02\xc3\xa9\xff\xff\xff\xff\0\0\0\x02\0\xff",
    ..."\0\x01\0\0",
  ].join("");
  const length = String.fromCharCode(bind.length + 4);
  expect(message.toString("latin1")).toBe(`B\0\0\0${length}${bind}D\0\0\0\x06P\0E\0\0\0\x09\0\0\0\0\0`);
});

test("a statement without values, and without a name", () => {
  expect(runMessage("", []).toString("latin1")).toBe(
    "B\0\0\0\x0e\0\0\0\0\0\0\0\x01\0\0D\0\0\0\x06P\0E\0\0\0\x09\0\0\0\0\0",
  );
});
