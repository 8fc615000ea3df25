import { expect, test } from "vitest";
import { stampedFrame } from "./wire_frame.ts";

const framed = () => stampedFrame(Buffer.from("before "), 2, Buffer.from(" after"), false).stamped!;
const message = (bytes: Buffer | undefined) => bytes?.toString("latin1", 2);

test("sockets that release the shared buffer reuse it", () => {
  const stamped = framed();
  const first = stamped.lend(Buffer.from("aa"));
  expect(message(first)).toBe("before aa after");
  const second = stamped.lend(Buffer.from("bb"));
  expect(second).toBe(first);
  expect(message(second)).toBe("before bb after");
});

test("a kept buffer is never overwritten, and the copies are limited", () => {
  const stamped = framed();
  const kept: (Buffer | undefined)[] = [];
  for (let n = 10; n < 40; n++) {
    kept.push(stamped.lend(Buffer.from(String(n))));
    stamped.keep();
  }
  expect(kept.slice(0, 17).map(message)).toEqual(kept.slice(0, 17).map((_, n) => `before ${10 + n} after`));
  expect(kept.slice(17).every((bytes) => bytes === undefined)).toBe(true);
  expect(stamped.before.toString("latin1", 2)).toBe("before ");
  expect(stamped.after.toString()).toBe(" after");
});
