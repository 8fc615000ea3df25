import { testContext } from "@khala/test-support/kit/context";
import { ManualClock } from "@khala/test-support/kit/manual_clock";
import { expect, test } from "vitest";
import { openConcurrencyQuota, openRateQuota } from "./quota.ts";

const refused = (retry_after_ms: number) =>
  expect.objectContaining({ code: "limit_exceeded", details: { retry_after_ms, field: "things" } });

async function rateOf(perSecond: number, maxKeys?: number) {
  const clock = new ManualClock();
  const context = await testContext({ clock });
  const quota = openRateQuota(context, {
    name: "things",
    of: "things a second",
    perSecond,
    ...(maxKeys && { maxKeys }),
  });
  const taken = (key: string, times: number) => {
    for (let i = 0; i < times; i++) quota.take(key);
  };
  return { clock, context, quota, taken };
}

test("limits a key to its rate per second, with the time to wait, and affects no other key", async () => {
  const { clock, quota, taken } = await rateOf(4);
  taken("a", 4);
  expect(() => quota.take("a")).toThrow(refused(250));
  taken("b", 4);
  await clock.advance(249);
  expect(() => quota.take("a")).toThrow(refused(1));
  await clock.advance(1);
  quota.take("a");
  expect(() => quota.take("a")).toThrow(refused(250));
  await clock.advance(60_000);
  taken("a", 4);
  expect(() => quota.take("a")).toThrow(refused(250));
});

test("remembers a bounded number of keys, and drops the least recently used", async () => {
  const { quota, taken } = await rateOf(1, 2);
  taken("a", 1);
  taken("b", 1);
  expect(() => quota.take("a")).toThrow(refused(1_000));
  taken("c", 1);
  expect(() => quota.take("a")).toThrow(refused(1_000));
  taken("b", 1);
});

test("limits the concurrency of a key, and releases a slot once", async () => {
  const quota = openConcurrencyQuota(await testContext(), { name: "things", of: "things", limit: 2 });
  const first = quota.acquire("a");
  quota.acquire("a");
  expect(() => quota.acquire("a")).toThrow(refused(1_000));
  expect([quota.hasRoom("a"), quota.hasRoom("b"), quota.full()]).toEqual([false, true, ["a"]]);
  quota.acquire("b");
  first();
  first();
  const again = quota.acquire("a");
  expect(() => quota.acquire("a")).toThrow(refused(1_000));
  const beyond = quota.acquireAnyway("a");
  again();
  expect(quota.hasRoom("a")).toBe(false);
  beyond();
  expect(quota.hasRoom("a")).toBe(true);
});

test("counts rejections by quota, from zero", async () => {
  const { context, quota, taken } = await rateOf(1);
  openConcurrencyQuota(context, { name: "others", of: "others", limit: 1 });
  taken("a", 1);
  expect(() => quota.take("a")).toThrow("quota things: 1 things a second");
  const scraped = await context.telemetry.scrape();
  expect(scraped).toMatch(/khala_quota_rejections_total\{[^}]*quota="things"[^}]*\} 1\b/);
  expect(scraped).toMatch(/khala_quota_rejections_total\{[^}]*quota="others"[^}]*\} 0\b/);
});

test("shows operators an org's use of each quota, and the orgs that use something", async () => {
  const { clock, context, taken } = await rateOf(4);
  const places = openConcurrencyQuota(context, { name: "places", of: "places", limit: 2 });
  taken("a", 3);
  places.acquire("b");
  places.acquire("b");
  expect(() => places.acquire("b")).toThrow("quota places");
  const use = (org: string, name: string, limit: number, inUse: number, rejected = 0) =>
    expect.objectContaining({ org, name, limit, inUse, rejected });
  expect(await context.quotas.of("a")).toEqual([use("a", "things", 4, 3), use("a", "places", 2, 0)]);
  const all = [use("a", "things", 4, 3), use("b", "places", 2, 2, 1)];
  expect(await context.quotas.ofAll(10)).toEqual(all);
  await clock.advance(500);
  expect(await context.quotas.of("a")).toContainEqual(use("a", "things", 4, 1));
  expect(await context.quotas.of("nobody")).toEqual([
    use("nobody", "things", 4, 0),
    use("nobody", "places", 2, 0),
  ]);
});
