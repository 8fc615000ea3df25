import { expect, test } from "vitest";
import { buildSite } from "../../scripts/build/site.ts";

test("the documentation builds, without a dead link", { timeout: 600_000 }, async () => {
  const built = await buildSite();
  expect(built, built.output).toMatchObject({ code: 0 });
});
