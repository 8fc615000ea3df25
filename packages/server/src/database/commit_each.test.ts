import { KhalaError } from "@khala/contracts";
import { testContext } from "@khala/test-support/kit/context";
import { ManualClock } from "@khala/test-support/kit/manual_clock";
import { expect, test } from "vitest";
import { commitEach } from "./commit_each.ts";

const sqlError = (code: string) => Object.assign(new Error(code), { code });
const lost = () => new KhalaError("unavailable", "lost", {}, { cause: sqlError("ECONNRESET") });
const items = Array.from({ length: 64 }, (_, i) => i);

/** Commits the items; `fail` returns the error of an attempt. Resolves with the outcomes and the sizes of the batches tried. */
async function run(fail: (some: readonly number[], call: number) => unknown, isIdempotent = false) {
  const { random } = await testContext();
  const clock = new ManualClock();
  const sizes: number[] = [];
  const committing = commitEach({ clock, random }, items, {
    isIdempotent,
    async commit(some) {
      const error = fail(some, sizes.push(some.length));
      if (error) throw error;
      return some.map((ok) => ({ ok }));
    },
  });
  let done = false;
  void committing.then(() => {
    done = true;
  });
  while (!done) await clock.advance(1_000);
  return { outcomes: await committing, sizes };
}

const ok = items.map((item) => ({ ok: item }));

test.for(["22P02", "23514", "21000", "54000", "P0001"])("fails only the bad item (%s)", async (code) => {
  const { outcomes } = await run((some) => some.includes(41) && sqlError(code));
  expect(outcomes).toEqual(
    ok.map((each, i) => (i === 41 ? { error: expect.objectContaining({ code }) } : each)),
  );
});

test.for(["40001", "40P01", "55P03"])("retries %s, without splitting the batch", async (code) => {
  const { outcomes, sizes } = await run((_, call) => call < 3 && sqlError(code));
  expect(outcomes).toEqual(ok);
  expect(sizes).toEqual([64, 64, 64]);
});

test("reports a repeated deadlock as a retryable unavailable", async () => {
  const { outcomes, sizes } = await run(() => sqlError("40P01"));
  expect(sizes).toEqual([64, 64, 64, 64]);
  for (const outcome of outcomes) expect(outcome).toMatchObject({ error: { code: "unavailable" } });
});

test.for(["57014", "42501", "XX000"])(
  "fails all items after one attempt on %s, which no single item causes",
  async (code) => {
    const { outcomes, sizes } = await run(() => sqlError(code));
    expect(sizes).toEqual([64]);
    expect(outcomes).toHaveLength(64);
  },
);

test("repeats after a lost answer only if that is safe", async () => {
  expect((await run((_, call) => call === 1 && lost(), true)).outcomes).toEqual(ok);
  const { sizes, outcomes } = await run(lost);
  expect(sizes).toEqual([64]);
  expect(outcomes[0]).toMatchObject({ error: { code: "unavailable" } });
});
