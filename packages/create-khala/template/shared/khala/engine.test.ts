import assert from "node:assert/strict";
import { test } from "node:test";
import { testEngine } from "@khala/testing";
import { engine } from "./engine.ts";

test("answers, and remembers the conversation", { skip: process.env.MODEL !== undefined }, async () => {
  const chat = testEngine(engine);
  assert.match((await chat.say("hi")).text, /^You said "hi"/);
  assert.match((await chat.say("again")).text, /before: 2\.$/);
});
