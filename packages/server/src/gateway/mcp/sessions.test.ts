import { testContext } from "@khala/test-support/kit/context";
import { ManualClock } from "@khala/test-support/kit/manual_clock";
import { testViewer } from "@khala/test-support/kit/viewer";
import { Server } from "@modelcontextprotocol/server";
import { expect, test } from "vitest";
import { memoryRevocations } from "../auth/revocations.ts";
import { openSessions } from "./sessions.ts";
import type { WatchOptions } from "./watch.ts";

async function open({ clock = new ManualClock(), maxPerOrg = 2 } = {}) {
  const context = await testContext({ clock });
  const revocations = memoryRevocations(clock);
  const sessions = openSessions(context, {
    revocations,
    // No test here watches anything.
    watching: {} as WatchOptions,
    newServer: () => new Server({ name: "test", version: "1" }, { capabilities: {} }),
    idleMs: 1_000,
    maxPerOrg,
  });
  return { clock, revocations, sessions };
}

const caller = (org = "acme") => ({ viewer: testViewer({ org }), authorization: "", address: "" });

test("an org has a limited number of sessions, and an ended one frees a slot", async () => {
  const { sessions } = await open();
  const first = await sessions.open(caller());
  await sessions.open(caller());
  await expect(sessions.open(caller())).rejects.toMatchObject({ code: "limit_exceeded" });
  await sessions.open(caller("globex"));
  await first.close();
  await sessions.open(caller());
});

test("a session ends when it is idle for a while", async () => {
  const { clock, sessions } = await open();
  const { id } = await sessions.open(caller());
  expect(sessions.find(id, caller()).id).toBe(id);
  await clock.advance(1_000);
  expect(() => sessions.find(id, caller())).toThrow("no such MCP session");
  expect(sessions.size).toBe(0);
});

test("a session ends when its token is revoked", async () => {
  const { clock, revocations, sessions } = await open();
  await sessions.open(caller());
  await revocations.revoke({ org: "acme", subject: caller().viewer.subject }, clock.now() + 1_000);
  expect(sessions.size).toBe(0);
});
