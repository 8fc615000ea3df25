import { expect, test } from "vitest";
import app from "./app.ts";
import { DEMO_STREAMS, DEMO_TOPICS } from "./names.ts";

test("the listed topics and streams are those of the app", () => {
  expect(DEMO_TOPICS).toEqual(app.models.all.map(({ topic }) => topic));
  const streams = app.streams.map(({ kind, path, scope }) => [kind, { path, scope }]);
  expect(DEMO_STREAMS).toEqual(Object.fromEntries(streams));
});
