import { describe } from "vitest";
import { countPromises } from "./board_counts.ts";
import { deadLetterPromises } from "./board_dead.ts";
import { dedupPromises } from "./board_dedup.ts";
import { edgePromises } from "./board_edges.ts";
import { fairnessPromises } from "./board_fairness.ts";
import { orderPromises } from "./board_order.ts";
import { processPromises } from "./board_processes.ts";
import { publishPromises } from "./board_publish.ts";
import { retryPromises } from "./board_retry.ts";
import { routingPromises } from "./board_routing.ts";
import { stopPromises } from "./board_stop.ts";
import type { OpenBoard } from "./board_support.ts";

export type { BoardUnderTest, OpenBoard } from "./board_support.ts";

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
