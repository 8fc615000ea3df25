import { describe, expect, test } from "vitest";
import { loopbackHost, originAllowed } from "./origin.ts";

const SELF = "khala.example.com";

describe("origins", () => {
  test("a program that sends no Origin is allowed", () => {
    expect(originAllowed(undefined, [], SELF)).toBe(true);
  });

  test.each([
    ["http://127.0.0.1:4000", "127.0.0.1:4000"],
    ["https://khala.example.com", "khala.example.com"],
    ["https://khala.example.com", "khala.example.com:443"],
    ["https://khala.example.com", "KHALA.example.com"],
    ["http://[::1]:4000", "[::1]:4000"],
  ])("a page of the server's own host is allowed: %s at %s", (origin, self) => {
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

  test("another host or port than the server's own is not the same host", () => {
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
