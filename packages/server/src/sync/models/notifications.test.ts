import { expect, test } from "vitest";
import type { AuthorityEvent } from "../../events/stream.ts";
import { notificationStream } from "../../events/streams.ts";
import { tombstone } from "../model.ts";
import { notifications } from "./notifications.ts";

const AT = "2026-11-01T00:00:00.000Z";

function event(
  type: string,
  data: AuthorityEvent["data"] = {},
  more: Partial<AuthorityEvent> = {},
): AuthorityEvent {
  const who = { org: "acme", owner: "ada", actor: "ada", trace: null };
  return { position: 1n, kind: "notification", streamId: "n1", seq: 1n, type, data, at: AT, ...who, ...more };
}

test("an app's notification is for its subject, and expires after 30 days by default", () => {
  const sent = event("notification.sent", { to: "ada", text: "Hello", about: "task:t1" }, { actor: "robot" });
  const made = notifications.project(null, sent);
  expect(made).toEqual({
    kind: "notification.sent",
    about: "task:t1",
    text: "Hello",
    created_at: AT,
    to: "ada",
    expires_at: "2026-12-01T00:00:00.000Z",
  });
  expect(notifications.id(sent)).toBe("n1");
  expect(notifications.audience(made as object, sent)).toEqual(["ada"]);
  const short = event("notification.sent", {
    to: "ada",
    text: "Now",
    expires_at: "2026-11-02T01:00:00+01:00",
  });
  expect(notifications.project(null, short)).toMatchObject({ expires_at: "2026-11-02T00:00:00.000Z" });
  const odd = event("notification.sent", { to: "ada", text: "Now", expires_at: "soon" });
  expect(notifications.project(null, odd)).toMatchObject({ expires_at: "2026-12-01T00:00:00.000Z" });
  expect(notifications.project(null, event("notification.sent", { to: "", text: "All" }))).toBeNull();
});

test("a run that ends notifies its owner", () => {
  const done = event("run.completed", {}, { kind: "run", streamId: "r1", seq: 7n });
  expect(notifications.id(done)).toBe("run:r1:7");
  expect(notifications.project(null, done)).toMatchObject({
    about: "run:r1",
    to: "ada",
    text: "Run r1 is done.",
  });
  expect(notifications.id(event("run.step", {}, { kind: "run" }))).toBeNull();
});

test("only its subject reads and dismisses it; a read one expires sooner", () => {
  const made = notifications.project(
    null,
    event("notification.sent", { to: "ada", text: "Hello" }),
  ) as object;
  const other = { actor: "bob" };
  expect(notifications.project(made, event("notification.read", {}, other))).toBe(made);
  expect(notifications.project(made, event("notification.dismissed", {}, other))).toBe(made);
  const read = notifications.project(made, event("notification.read")) as object;
  expect(read).toMatchObject({ read_at: AT, expires_at: "2026-11-08T00:00:00.000Z" });
  expect(
    notifications.project(read, event("notification.read", {}, { at: "2026-11-03T00:00:00.000Z" })),
  ).toBe(read);
  expect(notifications.project(read, event("notification.dismissed"))).toBe(tombstone);
  expect(notifications.project(null, event("notification.dismissed"))).toBeNull();
});

test("a service notifies anybody, other callers only themselves", () => {
  const stream = { id: "n1", owner: "ada", seq: 0n };
  const may = (scope: string, type: string, to: string) =>
    notificationStream.authorize?.({ subject: "ada", org: "acme", scopes: new Set([scope]) }, stream, {
      type,
      data: { to, text: "x" },
    });
  expect(may("runtime:service", "notification.sent", "bob")).toBe(true);
  expect(may("runtime:write", "notification.sent", "bob")).toBe(false);
  expect(may("runtime:write", "notification.sent", "ada")).toBe(true);
  expect(may("runtime:write", "notification.read", "")).toBe(true);
});
