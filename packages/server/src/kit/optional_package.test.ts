import { expect, test } from "vitest";
import { loadOptional } from "./optional_package.ts";

const missing = (name: string) => () =>
  Promise.reject(Object.assign(new Error(`Cannot find package '${name}'`), { code: "ERR_MODULE_NOT_FOUND" }));

test("a missing package is named with the setting that needs it and how to install it", async () => {
  await expect(loadOptional("ioredis", "REDIS_URL", missing("ioredis"))).rejects.toThrow(
    "REDIS_URL is set, and the package ioredis is not installed. Run `npm install ioredis`.",
  );
});

test("a package that is there but lacks one of its own fails as it is", async () => {
  const broken = loadOptional("ioredis", "REDIS_URL", missing("debug"));
  await expect(broken).rejects.toThrow("Cannot find package 'debug'");
});
