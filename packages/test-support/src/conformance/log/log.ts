import { afterAll, beforeAll, describe } from "vitest";
import { entryPromises } from "./entries.ts";
import { lifecyclePromises } from "./lifecycle.ts";
import { modelPromises } from "./model.ts";
import type { Handles, LogUnderTest } from "./support.ts";
import { watchPromises } from "./watch.ts";

export type { LogUnderTest } from "./support.ts";

/** The promises of every driver of the Log port. A driver's test calls this with a way to open one. */
export function logSuite(name: string, open: () => Promise<LogUnderTest>): void {
  describe(`the log on ${name}`, () => {
    let opened: Handles;
    const handles = () => opened;

    beforeAll(async () => {
      const under = await open();
      opened = { under, a: under.log, b: await under.another() };
    });
    afterAll(() => opened.under[Symbol.asyncDispose]());

    describe("entries", () => entryPromises(handles));
    describe("watchers", () => watchPromises(handles));
    describe("the life of a stream", () => lifecyclePromises(handles));
    describe("any sequence of operations", () => modelPromises(handles));
  });
}
