import { testContext } from "@khala/test-support/kit/context";
import { until } from "@khala/test-support/kit/until";
import { testViewer } from "@khala/test-support/kit/viewer";
import { testDatabase } from "@khala/test-support/postgres/test_database";
import { expect, test } from "vitest";
import type { Viewer } from "../../access/viewer.ts";
import { openStoredRevocations, type StoredRevocations } from "./revocations.ts";

const POLL_MS = 3_600_000;

async function openServers(maxPerOrg?: number) {
  const own = await testDatabase();
  const context = await testContext();
  const servers: StoredRevocations[] = [];
  const start = (aheadMs = 0) => {
    const wake = () => servers.forEach((server) => void server.refresh());
    const clock = { ...context.clock, now: () => context.clock.now() + aheadMs };
    const started = openStoredRevocations(own.database, { ...context, clock }, POLL_MS, wake, maxPerOrg);
    servers.push(started);
    return started;
  };
  return {
    a: start(),
    b: start(),
    start,
    quotas: context.quotas,
    expiresAt: context.clock.now() + 900_000,
    async [Symbol.asyncDispose]() {
      await Promise.all(servers.map((server) => server.stop()));
      await own[Symbol.asyncDispose]();
    },
  };
}

test("an org at its limit of revocations hinders no other org, and can still revoke itself", async () => {
  await using servers = await openServers(2);
  const { a, b, quotas, expiresAt } = servers;
  for (const jti of ["one", "two"]) await a.revoke({ org: "acme", jti }, expiresAt);
  await expect(a.revoke({ org: "acme", jti: "three" }, expiresAt)).rejects.toMatchObject({
    code: "limit_exceeded",
    details: { field: "revocations", retry_after_ms: 60_000 },
  });
  // Again is the same as once.
  await a.revoke({ org: "acme", jti: "two" }, expiresAt);
  await a.revoke({ org: "globex", subject: "ada" }, expiresAt);
  await a.revoke({ jti: "of any org" }, expiresAt);
  await a.revoke({ org: "acme" }, expiresAt);
  for (const viewer of [
    testViewer({ org: "globex", subject: "ada" }),
    testViewer({ org: "initech", jti: "of any org" }),
    testViewer({ subject: "bob" }),
  ])
    await until(`the other server knows of ${viewer.org}`, () => a.isRevoked(viewer) && b.isRevoked(viewer));
  expect((await quotas.of("acme")).at(-1)).toMatchObject({
    name: "revocations",
    limit: 2,
    inUse: 3,
  });
});

test("servers know each other's revocations, however much their clocks differ", async () => {
  await using servers = await openServers();
  const { a, b, start, expiresAt } = servers;
  const ahead = start(10 * 60_000);
  const [first, second] = ["one", "two"].map((jti) => testViewer({ jti })) as [Viewer, Viewer];
  await ahead.revoke({ org: first.org, jti: "one" }, expiresAt);
  await until("the first", () => [a, b].every((server) => server.isRevoked(first)));
  await a.revoke({ org: second.org, jti: "two" }, expiresAt);
  await until("the second", () => [ahead, b].every((server) => server.isRevoked(second)));
});

test("a server that starts later knows what was revoked before", async () => {
  await using servers = await openServers();
  const { a, start, expiresAt } = servers;
  const viewer = testViewer({ jti: "one" });
  await a.revoke({ org: viewer.org, jti: "one" }, expiresAt);
  const late = start();
  await until("the revocation", () => late.isRevoked(viewer));
});
