import { RunStartedSchema } from "@khala/contracts/runtime/v1";
import { ManualClock } from "@khala/test-support/kit/manual_clock";
import { type } from "arktype";
import * as v from "valibot";
import { expect, test } from "vitest";
import { z } from "zod";
import { checkEventData, type EventSchema } from "./event_schema.ts";
import { defineStream } from "./stream.ts";

const clock = new ManualClock();

function streamWith(schema: unknown) {
  return defineStream({
    kind: "task",
    scope: "tasks:write",
    events: { "task.added": schema as EventSchema },
  });
}

const refusal = (check: () => unknown) => {
  try {
    check();
  } catch (error) {
    return error as Error & { code?: string; details?: unknown };
  }
  throw new Error("was not refused");
};

test.each([
  ["nothing", undefined, /needs a schema: a Standard Schema, such as z.object.*; not undefined/],
  ["a plain object", { title: "string" }, /needs a schema.*not an object/],
  ["a text", "string", /not "string"/],
  ["a value", z.string(), /has a schema of type "string"\. The data of an event must be an object/],
  ["a list", z.array(z.string()), /has a schema of type "array"/],
  ["a Date", z.object({ at: z.date() }), /JSON data cannot match: Date cannot be represented/],
  ["a bigint", z.object({ at: z.bigint() }), /JSON data cannot match/],
])("%s is refused as a schema when the stream is defined", (_, schema, message) => {
  const error = refusal(() => streamWith(schema));
  expect(error).toBeInstanceOf(TypeError);
  expect(error.message).toMatch(/^The event "task.added" of the stream "task" /);
  expect(error.message).toMatch(message);
});

test.each(["tasks", "/tasks/", "/tasks/:id", "/tasks/*", "//tasks", "/chat", "/blackboard/v1/tasks", "/api"])(
  "refuses the path %s when the stream is defined, and not at the start of a server",
  (path) => {
    expect(() => defineStream({ ...streamWith(z.object({})), path })).toThrow(
      /^The path of the stream "task" /,
    );
  },
);

test.each([undefined, "", "tasks write", 5])("refuses the scope %j when the stream is defined", (scope) => {
  const stream = { ...streamWith(z.object({})), scope: scope as string };
  expect(() => defineStream(stream)).toThrow(/needs `scope`/);
});

test("refuses a stream without events", () => {
  expect(() => defineStream({ kind: "task", scope: "x", events: {} })).toThrow(/needs `events`/);
});

test.each([
  ["zod", z.object({ title: z.string(), tags: z.array(z.object({ name: z.string() })).default([]) })],
  ["valibot", v.object({ title: v.string(), tags: v.optional(v.array(v.object({ name: v.string() })), []) })],
  [
    "arktype",
    type({
      title: "string",
      tags: type({ name: "string" })
        .array()
        .default(() => []),
    }),
  ],
])("%s checks the data of an event, and names the invalid field", async (_, schema) => {
  const stream = streamWith(schema);
  const check = (data: object) => checkEventData(stream, "task.added", data as never, "events[2]", clock);
  expect(await check({ title: "One" })).toEqual({ title: "One", tags: [] });
  expect(refusal(() => check({ title: 1 }))).toMatchObject({
    code: "invalid_request",
    message: expect.stringMatching(/^The data of "task.added" is not valid: events\[2\]\.data\.title: .*\.$/),
    details: { field: "events[2].data.title" },
  });
  expect(refusal(() => check({ title: "One", tags: [{ name: "a" }, {}] }))).toMatchObject({
    details: { field: "events[2].data.tags[1].name" },
  });
});

test("awaits an asynchronous schema for a bounded time", async () => {
  const slow = Promise.withResolvers<boolean>();
  const stream = streamWith(z.object({ title: z.string().refine(() => slow.promise) }));
  const check = () => checkEventData(stream, "task.added", { title: "One" }, "events[0]", clock);
  const late = expect(check()).rejects.toThrow("the schema did not answer within 5000 ms");
  await clock.advance(5_000);
  await late;
  slow.resolve(true);
  expect(await check()).toEqual({ title: "One" });
});

test("accepts a protobuf message as a schema", () => {
  const stream = streamWith(RunStartedSchema);
  expect(checkEventData(stream, "task.added", { title: "One" }, "events[0]", clock)).toEqual({
    title: "One",
  });
});
