import { describe, expect, test } from "vitest";
import { LOOPBACK_ORIGINS, loopbackHost, mayMint, originAllowed } from "./origin.ts";

const SELF = "khala.example.com";

describe("origins", () => {
  test("allows a program that sends no Origin", () => {
    expect(originAllowed(undefined, [], SELF)).toBe(true);
  });

  test.each([
    ["http://127.0.0.1:4000", "127.0.0.1:4000"],
    ["https://khala.example.com", "khala.example.com"],
    ["https://khala.example.com", "khala.example.com:443"],
    ["https://khala.example.com", "KHALA.example.com"],
    ["http://[::1]:4000", "[::1]:4000"],
  ])("allows a page of the server's own host: %s at %s", (origin, self) => {
    expect(originAllowed(origin, [], self)).toBe(true);
  });

  test.each([
    ["https://app.example.com", "https://app.example.com"],
    ["https://app.example.com", "https://APP.example.com/"],
    ["http://localhost:3000", "http://localhost:3000"],
    ["https://a.b.example.org", "https://*.example.org"],
    ["https://a.example.org:8443", "https://*.example.org:8443"],
    ["https://anything.example", "*"],
    ["null", "*"],
  ])("%s is allowed by %s", (origin, entry) => {
    expect(originAllowed(origin, [entry], SELF)).toBe(true);
  });

  test.each([
    ["http://app.example.com", "https://app.example.com"],
    ["https://app.example.com:8443", "https://app.example.com"],
    ["https://app.example.com.evil.test", "https://app.example.com"],
    ["https://example.org", "https://*.example.org"],
    ["https://evilexample.org", "https://*.example.org"],
    ["https://a.example.org.evil.test", "https://*.example.org"],
    ["https://evil.test/.example.org", "https://*.example.org"],
    ["https://evil.test#.example.org", "https://*.example.org"],
    ["https://evil.test:443@a.example.org", "https://*.example.org"],
    ["https://a.example.org:8443", "https://*.example.org"],
    ["http://a.example.org", "https://*.example.org"],
    ["https://.example.org", "https://*.example.org"],
    ["null", "null"],
    ["null", "https://app.example.com"],
    ["", "https://app.example.com"],
    ["file://", "file://"],
    ["not an origin", "https://app.example.com"],
    ["https://a.example.org", "*.example.org"],
  ])("%s is not allowed by %s", (origin, entry) => {
    expect(originAllowed(origin, [entry], SELF)).toBe(false);
  });

  test.each([
    "http://localhost:5173",
    "http://localhost",
    "http://127.0.0.1:3000",
    "http://[::1]:8080",
    "https://localhost:5173",
  ])("%s is a loopback origin: a development server lets it read data and open sockets", (origin) => {
    expect(originAllowed(origin, LOOPBACK_ORIGINS, "127.0.0.1:4000")).toBe(true);
    expect(originAllowed(origin, [], "127.0.0.1:4000")).toBe(false);
  });

  test.each([
    "http://localhost.evil.test",
    "http://localhost.evil.test:5173",
    "http://evil.test:5173",
    "http://127.0.0.1.evil.test",
    "http://localhost:5173@evil.test",
    "https://evil.test",
    "null",
  ])("%s is no loopback origin", (origin) => {
    expect(originAllowed(origin, LOOPBACK_ORIGINS, "127.0.0.1:4000")).toBe(false);
  });

  test("another host or port than the server's own is a different host", () => {
    expect(originAllowed("http://127.0.0.1:3000", [], "127.0.0.1:4000")).toBe(false);
    expect(originAllowed("http://evil.test", [], "127.0.0.1:4000")).toBe(false);
    expect(originAllowed("http://evil.test", [], undefined)).toBe(false);
  });
});

describe("a loopback host", () => {
  test.each([
    "localhost",
    "localhost:4000",
    "dev.localhost:4000",
    "127.0.0.1:4000",
    "127.9.9.9",
    "[::1]:4000",
  ])("%s is one", (host) => {
    expect(loopbackHost(host)).toBe(true);
  });

  test.each([
    undefined,
    "",
    "evil.test:4000",
    "127.0.0.1.evil.test",
    "localhost.evil.test",
    "0.0.0.0",
    "10.0.0.1",
  ])("%s is none, whatever address it resolves to", (host) => {
    expect(loopbackHost(host)).toBe(false);
  });
});

describe("a development server mints", () => {
  const HERE = { host: "127.0.0.1:4000" };
  const asks = (headers: Readonly<Record<string, string>>, ip = "127.0.0.1") =>
    mayMint({ ip, headers: { ...HERE, ...headers } });

  test("for programs on this machine, and for its own page", () => {
    expect(asks({})).toBe(true);
    expect(asks({}, "::1")).toBe(true);
    expect(asks({}, "::ffff:127.0.0.1")).toBe(true);
    expect(asks({ origin: "http://127.0.0.1:4000" })).toBe(true);
    expect(asks({ host: "localhost:4000", origin: "http://localhost:4000" })).toBe(true);
  });

  test.each([
    "https://evil.test",
    "http://evil.test:4000",
    // A page of another port may be anybody's; it may read data, with a token.
    "http://127.0.0.1:5173",
    "http://localhost:4000",
    "null",
    "",
  ])("not for a page of %s", (origin) => {
    expect(asks({ origin })).toBe(false);
  });

  test.each(["x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "forwarded", "via", "x-real-ip"])(
    "not through a proxy, which %s reveals",
    (name) => {
      expect(asks({ [name]: "127.0.0.1" })).toBe(false);
    },
  );

  test("not for other machines, nor under a name that resolves to this one", () => {
    expect(asks({}, "10.0.0.7")).toBe(false);
    expect(asks({ host: "evil.test:4000" })).toBe(false);
    expect(asks({ host: "evil.test:4000", origin: "http://evil.test:4000" })).toBe(false);
  });
});
