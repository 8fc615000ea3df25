import { expect, test } from "vitest";
import { formatRedisAddress, parseRedisAddress, parseRedisUrl } from "./url.ts";

test("a URL contains the address, the login, and whether it is a cluster", () => {
  expect(parseRedisUrl("redis://localhost")).toEqual({
    addresses: [{ host: "localhost", port: 6379 }],
    db: 0,
    tls: false,
    cluster: false,
  });
  expect(parseRedisUrl("rediss://me:p%40ss%2Fword@redis.example:6380/3")).toEqual({
    addresses: [{ host: "redis.example", port: 6380 }],
    username: "me",
    password: "p@ss/word",
    db: 3,
    tls: true,
    cluster: false,
  });
  expect(parseRedisUrl("redis://:word@h:1?cluster=true")).toMatchObject({ password: "word", cluster: true });
  expect(parseRedisUrl("rediss-cluster://a:1,[::1]:2,c")).toMatchObject({
    addresses: [
      { host: "a", port: 1 },
      { host: "::1", port: 2 },
      { host: "c", port: 6379 },
    ],
    tls: true,
    cluster: true,
  });
});

test("refuses an invalid URL with the expected form, and without the password", () => {
  for (const url of [
    "http://h",
    "redis://",
    "redis://a:1,b:2",
    "redis-cluster://a:1/2",
    "redis://a:b:c",
    "redis://:secret@h:99999",
    "redis://u:secret@h:1/x",
  ]) {
    let problem = "";
    try {
      parseRedisUrl(url);
    } catch (error) {
      problem = (error as Error).message;
    }
    expect(problem, url).not.toBe("");
    expect(problem).not.toContain("secret");
  }
});

test("formats an address as it was written", () => {
  for (const address of ["127.0.0.1:7000", "redis.example:6379", "[fe80::1]:6380"])
    expect(formatRedisAddress(parseRedisAddress(address))).toBe(address);
});
