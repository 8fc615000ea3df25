import { makeTestArtifact, makeTestTask } from "@khala/test-support/conformance/board/support";
import { testContext } from "@khala/test-support/kit/context";
import { until } from "@khala/test-support/kit/until";
import { testDatabase } from "@khala/test-support/postgres/test_database";
import { afterEach, beforeEach, expect, test } from "vitest";
import { openClaims } from "./claims.ts";
import { openHeldTasks } from "./held_tasks.ts";

/** Unhandled rejections end a server. */
const unheard: unknown[] = [];
const hear = (error: unknown) => void unheard.push(error);
beforeEach(() => {
  unheard.length = 0;
  process.on("unhandledRejection", hear);
});
afterEach(() => void process.off("unhandledRejection", hear));

/** Lets writes wait. */
function gate() {
  const begun = Promise.withResolvers<void>();
  const open = Promise.withResolvers<void>();
  return {
    begun: begun.promise,
    open: open.resolve,
    async through<T>(write: () => Promise<T>): Promise<T> {
      begun.resolve();
      await open.promise;
      return write();
    },
  };
}

test.each(["is made", "fails"])("cancelling work while its offer %s cancels that work only", async (how) => {
  await using own = await testDatabase();
  const context = await testContext();
  const claims = openClaims(own.database, { server: "one", leaseMs: 10_000, offerMs: 10_000 });
  const slow = gate();
  const offer: typeof claims.offer = async (...asked) => {
    if (how === "fails") throw new Error("the database is away");
    return claims.offer(...asked);
  };
  const held = openHeldTasks(
    context,
    { ...claims, offer: (...asked) => slow.through(() => offer(...asked)) },
    { timeoutOf: () => 60_000, placesOf: () => 100, offered() {}, outcomeStored() {} },
  );
  const called = new AbortController();
  const work = held.work(makeTestTask("remote", makeTestArtifact()), called.signal);
  await slow.begun;
  called.abort(new Error("called off"));
  // Nothing awaits it yet that could handle the rejection.
  for (let turns = 0; turns < 3; turns++) await new Promise(setImmediate);
  slow.open();
  await expect(work).rejects.toThrow(how === "fails" ? "the database is away" : "called off");
  await held.stop();
  expect(unheard).toEqual([]);
});

test.each(["made", "renewed"] as const)(
  "nobody claims an offer that is being %s when the server drains, nor a later one",
  async (how) => {
    await using own = await testDatabase();
    const context = await testContext();
    const claims = openClaims(own.database, { server: "one", leaseMs: 10_000, offerMs: 10_000 });
    const slow = gate();
    const offered = Promise.withResolvers<void>();
    let now = context.clock.now();
    const held = openHeldTasks(
      { ...context, clock: { ...context.clock, now: () => now } },
      {
        ...claims,
        offer: (...asked) =>
          how === "made" ? slow.through(() => claims.offer(...asked)) : claims.offer(...asked),
        renew: () => slow.through(claims.renew),
      },
      { timeoutOf: () => 60_000, placesOf: () => 100, offered: () => offered.resolve(), outcomeStored() {} },
    );
    const given = new AbortController();
    const works = [held.work(makeTestTask("remote", makeTestArtifact()), given.signal)];
    if (how === "renewed") {
      await offered.promise;
      now += 3_600_000;
      works.push(held.poll().then(() => []));
    }
    await slow.begun;
    const drained = held.drain();
    slow.open();
    await drained;
    const take = () => claims.take({ agent: "remote", worker: "w", max: 10, org: undefined });
    expect(await take()).toEqual([]);
    works.push(held.work(makeTestTask("remote", makeTestArtifact()), given.signal));
    await until("both offers", async () => (await ownOffers()) === 2);
    expect(await take()).toEqual([]);
    given.abort(new Error("given back"));
    await Promise.allSettled(works);
    await held.stop();

    async function ownOffers() {
      const [row] = await own.database.query<{ open: number }>({
        text: "SELECT count(*)::int AS open FROM runtime.board_claims WHERE state = 'offered'",
        values: [],
      });
      return row!.open;
    }
  },
);
