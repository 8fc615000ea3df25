import { createHmac } from "node:crypto";
import type { Values } from "./values.ts";

/** The orgs of good tokens. */
export const ORGS = ["acme", "Acme Inc", "co:x"];
const SCOPES = [
  "runtime.run_summaries",
  "runtime:write",
  "runtime:service",
  "chat",
  "chat:service",
  "blackboard:read",
  "blackboard:write",
  "blackboard:work:*",
  "ops",
  "platform",
];

const encoded = (value: unknown) => Buffer.from(JSON.stringify(value)).toString("base64url");

/** Makes good tokens of three orgs, and damaged ones. */
export class Tokens {
  readonly #values: Values;
  readonly #secret: Buffer;

  constructor(values: Values, secret: Buffer) {
    this.#values = values;
    this.#secret = secret;
  }

  good(): string {
    const values = this.#values;
    return this.#token(
      values.pick(["ada", "bob"]),
      values.pick(ORGS),
      SCOPES.filter(() => values.chance(0.8)),
    );
  }

  /** A token of an org with every scope, of a subject that the fuzzer does not revoke. */
  of(org: string): string {
    return this.#token("eve", org, SCOPES);
  }

  /** A token that no server may accept. */
  bad(): string {
    const values = this.#values;
    const [header, payload, signature] = this.good().split(".") as [string, string, string];
    const claims = JSON.parse(Buffer.from(payload, "base64url").toString());
    switch (values.below(8)) {
      case 0:
        return `${encoded({ alg: "none", kid: "fuzz" })}.${payload}.`;
      case 1:
        return `${header}.${encoded({ ...claims, oa_org_id: "other" })}.${signature}`;
      case 2:
        return this.#signed({ ...claims, exp: 1 });
      case 3:
        return this.#signed({ ...claims, sub: undefined });
      case 4:
        return this.#signed({ ...claims, exp: claims.exp + 1e9 });
      case 5:
        return `${encoded({ alg: "HS256", kid: values.text() })}.${payload}.${signature}`;
      case 6:
        return values.bytes(200).toString("base64url");
      default:
        return `${header}.${payload}.${values.bytes(32).toString("base64url")}`;
    }
  }

  #token(sub: string, org: string, scopes: readonly string[]): string {
    const now = Math.floor(Date.now() / 1_000);
    const jti = `j${this.#values.below(1e9)}`;
    return this.#signed({ sub, oa_org_id: org, oa_sync_scopes: scopes, jti, iat: now, exp: now + 600 });
  }

  #signed(claims: object): string {
    const body = `${encoded({ alg: "HS256", kid: "fuzz" })}.${encoded(claims)}`;
    return `${body}.${createHmac("sha256", this.#secret).update(body).digest("base64url")}`;
  }
}
