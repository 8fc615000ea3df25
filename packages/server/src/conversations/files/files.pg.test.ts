import { randomBytes, randomUUID } from "node:crypto";
import { fileStoreSuite } from "@khala/test-support/conformance/files/file_store";
import { testContext } from "@khala/test-support/kit/context";
import { until } from "@khala/test-support/kit/until";
import { testViewer } from "@khala/test-support/kit/viewer";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { StoredBytes } from "../../database/stored_bytes.ts";
import type { Context } from "../../kit/context.ts";
import type { ConversationRef } from "../conversation.ts";
import { openStore } from "../store.ts";
import type { FileStore } from "./file_store.ts";
import { readDataUrl } from "./file_urls.ts";
import { openFiles } from "./files.ts";
import { openPostgresFileStore } from "./postgres_file_store.ts";

let own: TestDatabase;
let context: Context;
beforeAll(async () => {
  own = await testDatabase();
  context = await testContext();
});
afterAll(() => own[Symbol.asyncDispose]());

const files = (more: { maxBytes?: number; stored?: StoredBytes; store?: FileStore } = {}) =>
  openFiles(own.database, context, {
    store: openPostgresFileStore(own.database),
    maxBytes: 1_000_000,
    ...more,
  });

async function conversation(): Promise<ConversationRef> {
  const { database } = own;
  const store = openStore(database, { holder: "s", leaseMs: 1_000, queueLimit: 1, newId: context.newId });
  return store.ensure(testViewer(), "conversation.write", `conv-${randomUUID()}`);
}

async function rows(table: "files" | "file_chunks"): Promise<number> {
  const [row] = await own.database.query<{ n: bigint }>({
    text: `SELECT count(*) AS n FROM runtime.${table}`,
  });
  return Number(row!.n);
}

async function* pieces(...all: readonly (Uint8Array | Error)[]): AsyncGenerator<Uint8Array> {
  for (const each of all) {
    if (each instanceof Error) throw each;
    yield each;
  }
}

fileStoreSuite("Postgres", () => ({
  store: openPostgresFileStore(own.database),
  async newKey() {
    const { org, convId } = await conversation();
    const fileId = randomUUID();
    const text = `INSERT INTO runtime.files (org_id, file_id, conv_id, name, media_type, size)
      VALUES ($1, $2, $3, 'file', 'text/plain', 0)`;
    await own.database.query({ text, values: [org, fileId, convId] });
    return { org, fileId };
  },
}));

test("stores a file with the type of its bytes, its name and its size, for its conversation", async () => {
  const of = await conversation();
  const stored = await files().put(of, {
    name: "chart.jpg",
    mediaType: "image/jpeg",
    author: "ada",
    bytes: pieces(Buffer.from("\x89PNG\r\n\x1a\n", "latin1"), randomBytes(10_000)),
  });
  expect(stored).toMatchObject({
    mediaType: "image/png",
    name: "chart.jpg",
    size: 10_008,
    convId: of.convId,
  });
  expect(await files().find(stored)).toEqual(stored);
  expect(await files().find({ ...stored, org: "another" })).toBeUndefined();
});

test("an upload that breaks off, is too large or exceeds the quota leaves nothing", async () => {
  const of = await conversation();
  const before = [await rows("files"), await rows("file_chunks")];
  const upload = (bytes: AsyncIterable<Uint8Array>, stored?: StoredBytes) =>
    files({ maxBytes: 600_000, ...(stored && { stored }) }).put(of, { name: "f", author: "ada", bytes });
  const left = new Error("The sender has left.");
  await expect(upload(pieces(randomBytes(500_000), left))).rejects.toThrow(left);
  await expect(upload(pieces(randomBytes(300_000), randomBytes(300_001)))).rejects.toMatchObject({
    code: "payload_too_large",
  });
  await expect(upload(pieces())).rejects.toMatchObject({ code: "invalid_request" });
  let taken = 0;
  const stored: StoredBytes = {
    take(_org, _plane, bytes) {
      taken += bytes;
      if (taken > 300_000) throw new Error("The quota is used up.");
    },
  };
  await expect(upload(pieces(randomBytes(300_000), randomBytes(1)), stored)).rejects.toThrow("quota");
  expect([await rows("files"), await rows("file_chunks")]).toEqual(before);
});

test("deleting the conversation during an upload deletes the file", async () => {
  const of = await conversation();
  async function* bytes() {
    yield randomBytes(300_000);
    const text = "DELETE FROM runtime.conversations WHERE org_id = $1 AND conv_id = $2";
    await own.database.query({ text, values: [of.org, of.convId] });
    yield randomBytes(300_000);
  }
  await expect(files().put(of, { name: "f", author: "ada", bytes: bytes() })).rejects.toMatchObject({
    code: "not_found",
  });
  const old = files().put(of, { name: "f", author: "ada", bytes: pieces(Buffer.from("x")) });
  await expect(old).rejects.toMatchObject({ code: "not_found" });
});

test("stores the same bytes of a conversation once", async () => {
  const [one, other] = [await conversation(), await conversation()];
  const bytes = randomBytes(1_000);
  const file = { name: "f", author: "ada" };
  const first = await files().putBytes(one, file, bytes);
  expect(await files().putBytes(one, file, bytes)).toEqual(first);
  expect((await files().putBytes(one, { ...file, name: "g" }, bytes)).fileId).not.toBe(first.fileId);
  expect((await files().putBytes(other, file, bytes)).fileId).not.toBe(first.fileId);
});

test("the janitor removes unfinished uploads, with their data in a bucket", async () => {
  const of = await conversation();
  const deleted: string[] = [];
  const store: FileStore = {
    inBucket: true,
    put: async () => {},
    async *get() {},
    delete: async (keys) => void deleted.push(...keys.map(({ fileId }) => fileId)),
  };
  const complete = await files({ store }).put(of, {
    name: "f",
    author: "ada",
    bytes: pieces(Buffer.from("x")),
  });
  const text = `INSERT INTO runtime.files (org_id, file_id, conv_id, name, media_type, size, in_bucket, created_at)
    VALUES ($1, $2, $3, 'file', 'text/plain', 0, true, now() - $4 * interval '1 hour')`;
  for (const [fileId, age] of [
    ["old", 2],
    ["new", 0],
  ])
    await own.database.query({ text, values: [of.org, fileId, of.convId, age] });
  expect(await files({ store }).sweep()).toBe(false);
  expect(deleted).toEqual(["old"]);
  expect(await files().find(complete)).toBeDefined();
  await files({ store }).erase(of);
  expect(deleted.toSorted()).toEqual(["new", "old", complete.fileId].toSorted());
});

test("decodes the type and bytes of a data URL", () => {
  const read = (url: string) => {
    const { mediaType, bytes } = readDataUrl(url) ?? {};
    return [mediaType, bytes?.toString()];
  };
  expect(read("data:text/plain;base64,aGk=")).toEqual(["text/plain", "hi"]);
  expect(read("data:text/plain;charset=utf-8;base64,aGk=")).toEqual(["text/plain", "hi"]);
  expect(read("data:,a%20b")).toEqual([undefined, "a b"]);
  expect(read("data:text/plain;charset=utf-8,gr%C3%BC")).toEqual(["text/plain", "grü"]);
  for (const url of ["data:text/plain", "data:,%zz", "https://a.example/data:,x"])
    expect(readDataUrl(url), url).toBeUndefined();
});

test("the downloads of one org read a few chunks at a time, and those of another do not wait for them", async () => {
  const waiting: (() => void)[] = [];
  const reading: string[] = [];
  const database: typeof own.database = {
    ...own.database,
    async query(statement) {
      reading.push(String(statement.values?.[0]));
      await new Promise<void>((resolve) => waiting.push(resolve));
      return own.database.query(statement);
    },
  };
  const store = openPostgresFileStore(database);
  const download = async (org: string) => {
    for await (const _ of store.get({ org, fileId: "f" }, { start: 0, end: 1 }));
  };
  const all = ["acme", "acme", "acme", "globex"].map((org) =>
    expect(download(org)).rejects.toThrow("no file"),
  );
  await until("what may has begun", () => reading.includes("globex"));
  expect(reading).toEqual(["acme", "acme", "globex"]);
  for (const next of waiting.splice(0)) next();
  await until("the last one has begun", () => waiting.length === 1);
  waiting[0]!();
  await Promise.all(all);
});
