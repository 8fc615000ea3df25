import { randomBytes } from "node:crypto";
import { expect, test } from "vitest";
import { uuidv7 } from "../../kit/ids.ts";
import { type AuthSettings, openIssuer } from "./auth.ts";
import { handClock } from "./test_support.ts";

const clock = handClock();
const secret = () => randomBytes(32).toString("base64");
const settings = (secrets: string): AuthSettings => ({
  secrets,
  jwksUrl: undefined,
  jwksFile: undefined,
  issuer: undefined,
  audience: undefined,
  clockSkewS: 30,
  minTtlS: 60,
  maxTtlS: 900,
  devKeyFile: undefined,
});
const issuerOf = (secrets: string) => openIssuer(settings(secrets), { clock, newId: uuidv7(clock) });

test.each([
  ["2", "1"],
  ["new", "old"],
  ["10", "9"],
])("signs with the first secret, whatever the kids are: %s before %s", async (first, second) => {
  const issuer = issuerOf(`${first}:${secret()},${second}:${secret()}`);
  const { kid } = await issuer!.mint({ sub: "ada", org_id: "demo", scopes: [] });
  expect(kid).toBe(first);
});

test("refuses a repeated kid by name", () => {
  expect(() => issuerOf(`k1:${secret()},k2:${secret()},k1:${secret()}`)).toThrow(/`k1` twice/);
});
