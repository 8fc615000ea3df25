import { KhalaError } from "@khala/contracts";
import { testContext } from "@khala/test-support/kit/context";
import { testDatabase } from "@khala/test-support/postgres/test_database";
import { expect, test } from "vitest";
import { type AuditedAction, openAudit } from "./audit.ts";

const operator = { subject: "ada", org: "acme", scopes: new Set(["ops"]) };
const QUERY = { limit: 10 };

async function openTestAudit() {
  const own = await testDatabase();
  const audit = openAudit(own.database, await testContext(), { keepMs: 86_400_000, lines: false });
  const outcomes = async (caller = operator) =>
    (await audit.read(caller, QUERY)).map(({ resource, outcome }) => `${resource} ${outcome}`);
  const rename = (from: string, to: string) =>
    own.database.query({ text: `ALTER TABLE runtime.${from} RENAME TO ${to}` });
  return {
    audit,
    outcomes,
    rename,
    async [Symbol.asyncDispose]() {
      await audit.stop();
      await own[Symbol.asyncDispose]();
    },
  };
}

const action = (resource: string): AuditedAction => ({
  viewer: operator,
  action: "conversation.delete",
  resource,
  address: "::1",
});

test("writes an entry before the work, and its outcome afterwards", async () => {
  await using world = await openTestAudit();
  const { audit, outcomes } = world;
  const during = await audit.around(action("a"), () => outcomes());
  expect(during).toEqual(["a unknown"]);
  expect(await outcomes()).toEqual(["a ok"]);
  const refused = audit.around(action("b"), async () => {
    throw new KhalaError("not_found", "There is none.");
  });
  await expect(refused).rejects.toThrow("There is none.");
  expect(await outcomes()).toEqual(["b not_found", "a ok"]);
});

test("the outcome names the resource and org that the work found, also another org's", async () => {
  await using world = await openTestAudit();
  await world.audit.around(action("path"), async (what) => {
    what.resource = "subject";
    what.org = "globex";
  });
  expect(await world.outcomes()).toEqual([]);
  expect(await world.outcomes({ ...operator, org: "globex" })).toEqual(["subject ok"]);
});

test("records the outcome of a request that names what cannot be stored", async () => {
  await using world = await openTestAudit();
  const refused = world.audit.around(action("path"), async (what) => {
    what.resource = `e\0ve ${"x".repeat(1_000_000)}`;
    what.org = "ac\0me";
    throw new KhalaError("invalid_request", "It has a NUL.");
  });
  await expect(refused).rejects.toThrow("It has a NUL.");
  expect(await world.outcomes()).toEqual([expect.stringMatching(/^eve x{595} invalid_request$/)]);
});

test("does not do what it cannot record", async () => {
  await using world = await openTestAudit();
  await world.rename("audit_log", "away");
  let done = false;
  const refused = world.audit.around(action("a"), async () => {
    done = true;
  });
  await expect(refused).rejects.toThrow();
  expect(done).toBe(false);
});

test("returns the result when its outcome cannot be recorded, and shows the outcome as unknown", async () => {
  await using world = await openTestAudit();
  const result = await world.audit.around(action("a"), async () => {
    await world.rename("audit_log", "away");
    return 7;
  });
  expect(result).toBe(7);
  await world.rename("away", "audit_log");
  expect(await world.outcomes()).toEqual(["a unknown"]);
});

test("reads entries newest first, page by page", async () => {
  await using world = await openTestAudit();
  for (let i = 1; i <= 12; i++) await world.audit.around(action(String(i)), async () => {});
  const newest = await world.audit.read(operator, { limit: 7 });
  const older = await world.audit.read(operator, { limit: 7, before: newest.at(-1)!.id });
  expect([...newest, ...older].map(({ resource }) => resource)).toEqual([
    "12",
    "11",
    "10",
    "9",
    "8",
    "7",
    "6",
    "5",
    "4",
    "3",
    "2",
    "1",
  ]);
});
