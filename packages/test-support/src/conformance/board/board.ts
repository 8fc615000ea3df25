import { describe } from "vitest";
import { countPromises } from "./counts.ts";
import { deadLetterPromises } from "./dead_letters.ts";
import { dedupPromises } from "./dedup.ts";
import { edgePromises } from "./edges.ts";
import { fairnessPromises } from "./fairness.ts";
import { orderPromises } from "./order.ts";
import { orgPromises } from "./orgs.ts";
import { processPromises } from "./processes.ts";
import { publishPromises } from "./publish.ts";
import { retryPromises } from "./retry.ts";
import { routingPromises } from "./routing.ts";
import { stopPromises } from "./stop.ts";
import type { OpenBoard } from "./support.ts";

export type { BoardUnderTest, OpenBoard } from "./support.ts";

const SUBJECTS = {
  "publishing and the index": publishPromises,
  "payloads at the edges": edgePromises,
  "routing and consuming": routingPromises,
  order: orderPromises,
  "orgs with the same names": orgPromises,
  fairness: fairnessPromises,
  retries: retryPromises,
  "dead letters": deadLetterPromises,
  "what was settled": dedupPromises,
  "several processes": processPromises,
  stopping: stopPromises,
  counting: countPromises,
};
export type BoardSubject = keyof typeof SUBJECTS;

export interface BoardSuiteOptions {
  /** All of them unless set. */
  readonly subjects?: readonly BoardSubject[];
  /** Runs the tests of a subject concurrently, as they mostly wait. Not with `jump`, which moves the time of all. */
  readonly concurrent?: boolean;
}

/** The promises of every driver of the Board port. A driver's test calls this with a way to make a new board. */
export function boardSuite(name: string, open: OpenBoard, options: BoardSuiteOptions = {}): void {
  const { subjects = Object.keys(SUBJECTS) as BoardSubject[], concurrent = false } = options;
  // One block for each subject, so that they run one after the other: each opens a board of its own.
  for (const subject of subjects)
    describe(`the board on ${name}`, { timeout: 150_000 }, () => {
      describe(subject, { concurrent }, () => SUBJECTS[subject](open));
    });
}
