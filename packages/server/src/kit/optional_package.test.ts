import { expect, test } from "vitest";
import { loadOptional } from "./optional_package.ts";

const missing = (name: string) => () =>
  Promise.reject(Object.assign(new Error(`Cannot find package '${name}'`), { code: "ERR_MODULE_NOT_FOUND" }));

test("names a missing package, the setting that needs it, and how to install it", async () => {
  await expect(loadOptional("ioredis", "REDIS_URL", missing("ioredis"))).rejects.toThrow(
    "REDIS_URL is set, but the package ioredis is not installed. Run `npm install ioredis`.",
  );
});

test("passes on the error of a package that lacks one of its own", async () => {
  const broken = loadOptional("ioredis", "REDIS_URL", missing("debug"));
  await expect(broken).rejects.toThrow("Cannot find package 'debug'");
});
