import { describe } from "vitest";
import { countPromises } from "./counts.ts";
import { deadLetterPromises } from "./dead_letters.ts";
import { dedupPromises } from "./dedup.ts";
import { edgePromises } from "./edges.ts";
import { fairnessPromises } from "./fairness.ts";
import { orderPromises } from "./order.ts";
import { processPromises } from "./processes.ts";
import { publishPromises } from "./publish.ts";
import { retryPromises } from "./retry.ts";
import { routingPromises } from "./routing.ts";
import { stopPromises } from "./stop.ts";
import type { OpenBoard } from "./support.ts";

export type { BoardUnderTest, OpenBoard } from "./support.ts";

/** What every driver of the Board port promises. A driver's test is a call of this with a way to make a new board. */
export function boardSuite(name: string, open: OpenBoard): void {
  describe(`the board on ${name}`, { timeout: 150_000 }, () => {
    describe("publishing and the index", () => publishPromises(open));
    describe("payloads at the edges", () => edgePromises(open));
    describe("routing and consuming", () => routingPromises(open));
    describe("order", () => orderPromises(open));
    describe("fairness", () => fairnessPromises(open));
    describe("retries", () => retryPromises(open));
    describe("dead letters", () => deadLetterPromises(open));
    describe("what was settled", () => dedupPromises(open));
    describe("several processes", () => processPromises(open));
    describe("stopping", () => stopPromises(open));
    describe("counting", () => countPromises(open));
  });
}
