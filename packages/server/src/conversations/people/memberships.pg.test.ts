import { testContext } from "@khala/test-support/kit/context";
import { ManualClock } from "@khala/test-support/kit/manual_clock";
import { until } from "@khala/test-support/kit/until";
import { testDatabase } from "@khala/test-support/postgres/test_database";
import { expect, test } from "vitest";
import { openMemberships } from "./memberships.ts";

test("a role that was taken away before it was watched is noticed at once", async () => {
  await using own = await testDatabase();
  const memberships = openMemberships(await testContext({ clock: new ManualClock() }), own.database);
  try {
    const changes: unknown[] = [];
    for (const subject of ["ada", "bob"]) {
      const forget = memberships.watch({ org: "acme", convId: "c", subject, role: "member" }, (role) =>
        changes.push([subject, role]),
      );
      // The clock stands still, so that no poll helps.
      await until(`the removal of ${subject}`, () => changes.length > 0);
      expect(changes.splice(0)).toEqual([[subject, null]]);
      forget();
    }
  } finally {
    await memberships.stop();
  }
});
