import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { SCOPES } from "@khala/contracts";
import { testViewer } from "@khala/test-support/kit/viewer";
import { describe, expect, test } from "vitest";
import { hasScopeFor, isReserved, may, orgOf, requireScope } from "./access.ts";
import { ACTIONS, type Action, type Rule } from "./actions.ts";

const everyScope = [...Object.values(SCOPES), "issuer", "runtime.run_summaries"];
const target = { topic: "runtime.run_summaries", agent: "writer" };

describe("may", () => {
  const actions = Object.entries(ACTIONS) as [Action, Rule][];

  test.each(actions)("%s needs one of its scopes", (action, { everyOrg, scopes }) => {
    const own = { ...target, org: "acme", owner: "ada" };
    expect(may(testViewer({ scopes: everyScope }), action, own)).toBe(true);
    expect(may(testViewer({ scopes: [] }), action, own)).toBe(false);
    const others = everyScope.filter((scope) => !scopes.includes(scope) && scope !== everyOrg);
    const named = ["<topic>", "<stream>", "<agent>"].some((scope) => scopes.includes(scope));
    if (!named) expect(may(testViewer({ scopes: others }), action, own)).toBe(false);
  });

  test.each(actions)("%s reaches another org only with the scope for it", (action, { to, everyOrg }) => {
    const foreign = { ...target, org: "globex", owner: "ada" };
    const scopes = everyScope.filter((scope) => scope !== everyOrg);
    expect(may(testViewer({ scopes }), action, foreign)).toBe(to === "installation");
    if (everyOrg) expect(may(testViewer({ scopes: everyScope }), action, foreign)).toBe(true);
  });

  test.each(actions.filter(([, { to }]) => to === "owner"))(
    "%s is for the owner, or for a token of the whole org",
    (action, { orgWide }) => {
      const scopes = everyScope.filter((scope) => scope !== orgWide);
      const resource = { org: "acme", owner: "bob" };
      expect(may(testViewer({ scopes }), action, resource)).toBe(false);
      expect(may(testViewer({ scopes, subject: "bob" }), action, resource)).toBe(true);
      expect(may(testViewer({ scopes: everyScope }), action, resource)).toBe(true);
    },
  );

  test("a public artifact can be read in every org, and replaced only in its own", () => {
    const artifact = { org: "globex", isPublic: true, audience: null };
    expect(may(testViewer(), "artifact.read", artifact)).toBe(true);
    expect(may(testViewer({ scopes: [] }), "artifact.read", artifact)).toBe(false);
    expect(may(testViewer(), "artifact.replace", artifact)).toBe(false);
    expect(may(testViewer({ org: "globex" }), "artifact.replace", artifact)).toBe(true);
  });

  test("a document is visible to its audience, and never to subjects it is hidden from", () => {
    const ada = testViewer({ scopes: [target.topic] });
    const document = { org: "acme", topic: target.topic };
    expect(may(ada, "document.read", { ...document, audience: null })).toBe(true);
    expect(may(ada, "document.read", { ...document, audience: ["ada"] })).toBe(true);
    expect(may(ada, "document.read", { ...document, audience: ["bob"] })).toBe(false);
    expect(may(ada, "document.read", { ...document, audience: [] })).toBe(false);
    expect(may(ada, "document.read", { ...document, audience: null, hiddenFrom: ["ada"] })).toBe(false);
  });

  test("a worker may claim the tasks of the agents its token names", () => {
    const writer = testViewer({ scopes: ["blackboard:work:writer"] });
    expect(may(writer, "task.work", { org: "acme", agent: "writer" })).toBe(true);
    expect(may(writer, "task.work", { org: "acme", agent: "editor" })).toBe(false);
    const both = testViewer({ scopes: [SCOPES.blackboardWork] });
    expect(may(both, "task.work", { org: "acme", agent: "editor" })).toBe(true);
  });
});

describe("requireScope", () => {
  test("reports a missing scope as missing_scope, by name", () => {
    expect(() => requireScope(testViewer({ scopes: [] }), "artifact.read")).toThrow(
      expect.objectContaining({
        code: "missing_scope",
        message: expect.stringContaining('"blackboard:read"'),
      }),
    );
  });

  test("reports a missing topic as forbidden_topic, by name", () => {
    const viewer = testViewer({ scopes: ["runtime.run_summaries"] });
    expect(() => requireScope(viewer, "document.read", { topic: "runtime.run_summaries" })).not.toThrow();
    expect(() => requireScope(viewer, "document.read", { topic: "runtime.workers" })).toThrow(
      expect.objectContaining({
        code: "forbidden_topic",
        message: expect.stringContaining('"runtime.workers"'),
      }),
    );
  });

  test.each(["ops", "platform", "chat", "blackboard:work:writer"])(
    "the right %s is never a topic",
    (topic) => {
      expect(isReserved(topic)).toBe(true);
      expect(() => requireScope(testViewer({ scopes: [topic] }), "document.read", { topic })).toThrow(
        expect.objectContaining({ code: "forbidden_topic" }),
      );
    },
  );

  test("quotes and cuts a hostile topic name in the message", () => {
    const topic = `x"\n${"y".repeat(10_000)}`;
    const refused = () => requireScope(testViewer(), "document.read", { topic });
    expect(refused).toThrow(expect.objectContaining({ message: expect.not.stringContaining("\n") }));
    expect(refused).toThrow(/^.{1,300}$/);
  });

  test("a claim for an unknown agent needs the scope of some agent", () => {
    expect(hasScopeFor(testViewer({ scopes: ["blackboard:work:writer"] }), "task.work")).toBe(true);
    expect(hasScopeFor(testViewer(), "task.work")).toBe(false);
  });
});

test("a platform worker may claim the tasks of every org", () => {
  expect(orgOf(testViewer({ scopes: [SCOPES.blackboardWork] }), "task.work")).toBe("acme");
  expect(
    orgOf(testViewer({ scopes: [SCOPES.blackboardWork, SCOPES.platform] }), "task.work"),
  ).toBeUndefined();
});

test("no other folder looks for a scope", () => {
  const source = join(import.meta.dirname, "..");
  const looks = globSync("**/*.ts", { cwd: source, exclude: ["access/**", "**/*.test.ts"] }).filter((file) =>
    /\bscopes\.has\(/.test(readFileSync(join(source, file), "utf8")),
  );
  expect(looks).toEqual([]);
});
