import { afterEach, beforeEach, expect, test } from "vitest";
import { testContext } from "../../../../e2e/support/context.ts";
import { testDatabase } from "../../../../e2e/support/postgres.ts";
import { makeTestArtifact, makeTestTask } from "../conformance/board_support.ts";
import { openClaims } from "./remote_claims.ts";
import { openHeldWork } from "./remote_held.ts";

/** Rejections that nobody heard of end a server. */
const unheard: unknown[] = [];
const hear = (error: unknown) => void unheard.push(error);
beforeEach(() => {
  unheard.length = 0;
  process.on("unhandledRejection", hear);
});
afterEach(() => void process.off("unhandledRejection", hear));

test.each(["is made", "fails"])(
  "work that is called off while its offer %s is called off, and no more",
  async (how) => {
    await using own = await testDatabase();
    const context = await testContext();
    const claims = openClaims(own.database, { server: "one", leaseMs: 10_000, offerMs: 10_000 });
    const offering = Promise.withResolvers<void>();
    const slow = Promise.withResolvers<void>();
    const held = openHeldWork(
      context,
      {
        ...claims,
        async offer(claimId, task) {
          offering.resolve();
          await slow.promise;
          if (how === "fails") throw new Error("the database is away");
          return claims.offer(claimId, task);
        },
      },
      { timeoutOf: () => 60_000, offered() {}, told() {} },
    );
    const called = new AbortController();
    const work = held.work(makeTestTask("remote", makeTestArtifact()), called.signal);
    await offering.promise;
    called.abort(new Error("called off"));
    // Nobody who could hear of it waits yet.
    for (let turns = 0; turns < 3; turns++) await new Promise(setImmediate);
    slow.resolve();
    await expect(work).rejects.toThrow(how === "fails" ? "the database is away" : "called off");
    await held.stop();
    expect(unheard).toEqual([]);
  },
);
