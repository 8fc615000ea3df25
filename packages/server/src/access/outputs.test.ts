import { expect, test } from "vitest";
import { type ArtifactResource, mayOutputReplace } from "./outputs.ts";

const artifact = (id: string, producer: string, audience: string[] | null, version = 1, org = "acme") =>
  ({ org, id, version, producer, audience }) satisfies ArtifactResource;
const ofOrg = artifact("i", "user:ada", null);
const ofAda = artifact("i", "user:ada", ["ada"]);
const ofBob = artifact("j", "user:bob", ["bob"]);
const ofAgent = artifact("k", "agent:planner", []);
const adas = artifact("x", "user:ada", ["ada"]);

test.each([
  ["an artifact of the org", [ofOrg], artifact("x", "user:bob", null)],
  ["its own private artifact", [ofOrg], artifact("x", "agent:writer", [])],
  ["a private artifact of its input's only reader", [ofAda], adas],
  ["the same, joined with an artifact of the org", [ofOrg, ofAda], adas],
  ["the private input itself", [ofAgent], ofAgent],
])("an output replaces %s", (_, inputs, existing) => {
  expect(mayOutputReplace("agent:writer", inputs, existing)).toBe(true);
});

test.each([
  ["a private artifact, for an input of the org", [ofOrg], adas],
  ["a private artifact of somebody else", [ofBob], adas],
  ["a private artifact of one of two readers", [ofAda, ofBob], adas],
  ["a private artifact of another agent", [ofOrg], ofAgent],
  ["what nobody reads, for an input that nobody reads", [ofAgent], artifact("l", "agent:critic", [])],
  [
    "a version that became private after its input",
    [artifact("x", "user:ada", null)],
    artifact("x", "user:ada", ["ada"], 2),
  ],
  ["an artifact of another org", [ofOrg], artifact("x", "agent:writer", null, 1, "evil")],
])("an output does not replace %s", (_, inputs, existing) => {
  expect(mayOutputReplace("agent:writer", inputs, existing)).toBe(false);
});
