import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { SCOPES } from "@khala/contracts";
import { defineApp } from "@khala/server";
import { expect, test } from "vitest";
import demo from "../demo/app.ts";
import { BUILT_IN, everyScope, findNames, namesOf, rememberApp } from "./app_names.ts";

async function folder(): Promise<AsyncDisposable & { readonly path: string }> {
  const path = await mkdtemp(join(tmpdir(), "khala-names-"));
  return { path, [Symbol.asyncDispose]: () => rm(path, { recursive: true }) };
}

test("an empty app has the built-in streams and no topic", () => {
  expect(namesOf(defineApp({}))).toEqual(BUILT_IN);
});

test("a folder has the names of the app that was served from it", async () => {
  await using data = await folder();
  expect(await findNames(undefined, data.path)).toEqual(BUILT_IN);
  rememberApp(join(data.path, "new"), namesOf(demo));
  expect(await findNames(undefined, join(data.path, "new"))).toEqual(namesOf(demo));
});

test("a token's scopes are the topics and rights of the app", () => {
  expect(everyScope(BUILT_IN)).toEqual(expect.arrayContaining(Object.values(SCOPES)));
  expect(everyScope(BUILT_IN)).not.toContain("runtime.run_summaries");
  expect(everyScope(namesOf(demo))).toContain("runtime.run_summaries");
});
