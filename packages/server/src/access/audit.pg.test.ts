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

test("an entry is there before the work, and gets its outcome once it has ended", async () => {
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

test("the outcome says what the work was found to concern, also in another org", async () => {
  await using world = await openTestAudit();
  await world.audit.around(action("path"), async (what) => {
    what.resource = "subject";
    what.org = "globex";
  });
  expect(await world.outcomes()).toEqual([]);
  expect(await world.outcomes({ ...operator, org: "globex" })).toEqual(["subject ok"]);
});

test("what cannot be recorded is not done", async () => {
  await using world = await openTestAudit();
  await world.rename("audit_log", "away");
  let done = false;
  const refused = world.audit.around(action("a"), async () => {
    done = true;
  });
  await expect(refused).rejects.toThrow();
  expect(done).toBe(false);
});

test("work whose outcome cannot be recorded has an unknown one, and its result", async () => {
  await using world = await openTestAudit();
  const result = await world.audit.around(action("a"), async () => {
    await world.rename("audit_log", "away");
    return 7;
  });
  expect(result).toBe(7);
  await world.rename("away", "audit_log");
  expect(await world.outcomes()).toEqual(["a unknown"]);
});

test("more than nine entries are read newest first, page by page", async () => {
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
