import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { ROOT } from "../run.ts";
import { IMAGE_FILES, imagesOf, withDigests } from "./image_digests.ts";

const OLD = `sha256:${"a".repeat(64)}`;
const NEW = `sha256:${"b".repeat(64)}`;
const names = (text: string) => imagesOf(text).map(({ name }) => name);

test("finds every image that a release is built from and runs beside", () => {
  const [dockerfile, compose] = IMAGE_FILES.map((file) => readFileSync(join(ROOT, file), "utf8"));
  const lines = (text: string, pattern: RegExp) => text.match(pattern)!.length;
  expect(names(dockerfile!)).toHaveLength(lines(dockerfile!, /^ARG \w*IMAGE/gm));
  // All but our own.
  expect(names(compose!)).toHaveLength(lines(compose!, /^ +image:/gm) - 1);
});

test("pins an image by its digest, again by a newer one, and leaves the rest of the file alone", () => {
  const text = `ARG NODE_IMAGE=node:24-slim\n  image: khala\n  image: ghcr.io/a/b-c:v1.5.0@${OLD}\n# image: x:1\n`;
  expect(imagesOf(text)).toEqual([
    { name: "node:24-slim", pinned: false },
    { name: "ghcr.io/a/b-c:v1.5.0", pinned: true },
  ]);
  const pinned = withDigests(text, new Map(names(text).map((name) => [name, NEW])));
  expect(pinned).toBe(
    `ARG NODE_IMAGE=node:24-slim@${NEW}\n  image: khala\n  image: ghcr.io/a/b-c:v1.5.0@${NEW}\n# image: x:1\n`,
  );
  expect(imagesOf(pinned).every(({ pinned: isPinned }) => isPinned)).toBe(true);
});
