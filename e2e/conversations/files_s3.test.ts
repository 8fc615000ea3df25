import { randomBytes, randomUUID } from "node:crypto";
import { mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { EraseResponseJson } from "@khala/contracts/ops/v1";
import { openS3FileStore } from "@khala/s3";
import { defineEngine } from "@khala/server/engines";
import type { FileStore } from "@khala/server/files";
import { fileStoreSuite } from "@khala/test-support/conformance/files/file_store";
import { eventually } from "@khala/test-support/kit/eventually";
import { testDatabase } from "@khala/test-support/postgres/test_database";
import { newConv } from "@khala/test-support/servers/ai_chat";
import { startConversations } from "@khala/test-support/servers/conversations";
import { startServer } from "@khala/test-support/servers/servers";
import { afterAll, beforeAll, expect, test } from "vitest";
import { systemClock } from "../../packages/server/src/kit/clock.ts";
import { ensureInstalled } from "../../scripts/install.ts";
import { importPeer } from "../peers/import_peer.ts";

// What is used of s3rver 3.7.1, a server that speaks S3 and stores in a folder. It answers `bytes=0-0` with the whole object,
// so the suite is told to leave that range out.
interface S3rver {
  readonly default: new (options: {
    address: string;
    port: number;
    silent: boolean;
    directory: string;
    configureBuckets: { name: string }[];
  }) => { run(): Promise<{ port: number }>; close(): Promise<void> };
}

await ensureInstalled("e2e/peers");
const { default: Server } = await importPeer<S3rver>("s3rver");

const keys = { accessKeyId: "S3RVER", secretAccessKey: "S3RVER" };
let folder: string;
let server: InstanceType<typeof Server>;
let url: string;
let store: FileStore;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "khala-s3-"));
  server = new Server({
    ...{ address: "127.0.0.1", port: 0, silent: true, directory: folder },
    configureBuckets: [{ name: "files" }],
  });
  const { port } = await server.run();
  url = `http://127.0.0.1:${port}/files`;
  store = openS3FileStore({ url, region: "us-east-1", ...keys, clock: systemClock });
});
afterAll(async () => {
  await server.close();
  await rm(folder, { recursive: true });
});

const objects = async () => {
  const names = await readdir(join(folder, "files"), { recursive: true });
  return names.filter((name) => name.endsWith("_object")).length;
};

fileStoreSuite(
  "a bucket",
  () => ({ store, newKey: async () => ({ org: `org ${randomUUID()}/ä`, fileId: randomUUID() }) }),
  { firstByteAlone: false },
);

test("reports a refused login of the bucket as unavailable, without its secret", async () => {
  // s3rver knows the key's id, and checks no signature of version 4.
  const login = { accessKeyId: "nobody", secretAccessKey: "hunter2" };
  const wrong = openS3FileStore({ url, region: "us-east-1", ...login, clock: systemClock });
  async function* bytes() {
    yield Buffer.from("x");
  }
  const error = await wrong.put({ org: "o", fileId: "f" }, bytes()).catch((cause) => cause);
  expect(error).toMatchObject({ code: "unavailable", message: expect.stringContaining("403") });
  expect(error.message).not.toContain("hunter2");
});

test("stores files in the bucket, serves their ranges, and removes them with the conversation", async () => {
  await using database = await testDatabase();
  const settings = {
    KHALA_FILES_S3_URL: url,
    KHALA_FILES_S3_ACCESS_KEY: keys.accessKeyId,
    KHALA_FILES_S3_SECRET_KEY: keys.secretAccessKey,
  };
  const convId = newConv();
  const send = async (of: { request: typeof khala.request }, bytes: Buffer<ArrayBuffer>) => {
    const init = { method: "POST", body: bytes, headers: { "content-type": "application/octet-stream" } };
    return (await (await of.request(`/files?conv_id=${convId}`, init)).json()) as { url: string };
  };
  const before = await objects();
  await using plain = await startConversations(database.url);
  await using khala = await startConversations(database.url, { settings });
  const bytes = randomBytes(6 << 20);
  const stored = await send(khala, bytes);
  expect(await objects()).toBe(before + 1);
  const part = await khala.request(stored.url, { headers: { range: "bytes=5242870-5242890" } });
  expect(part.status).toBe(206);
  expect(Buffer.from(await part.arrayBuffer())).toEqual(bytes.subarray(5_242_870, 5_242_891));
  // What was stored before the bucket was named is still there.
  const old = await send(plain, Buffer.from("old"));
  expect(await (await khala.request(old.url)).text()).toBe("old");
  expect((await khala.request(`/chat/${convId}`, { method: "DELETE" })).status).toBe(204);
  expect(await objects()).toBe(before);
});

test("erases the bytes of a subject's files, and of those that its runs made, and keeps the files of others", async () => {
  await using database = await testDatabase();
  const engine = defineEngine({
    async *run({ message }) {
      const url = `data:text/plain;base64,${Buffer.from(message).toString("base64")}`;
      yield { file_added: { file: { url, media_type: "text/plain", name: "answer.txt" } } };
      const call = { tool_call_id: randomUUID(), tool: "read" };
      yield { tool_call: { ...call, input: {} } };
      yield { tool_result: { ...call, output: { page: message.repeat(20_000) } } };
    },
  });
  const settings = {
    KHALA_FILES_S3_URL: url,
    KHALA_FILES_S3_ACCESS_KEY: keys.accessKeyId,
    KHALA_FILES_S3_SECRET_KEY: keys.secretAccessKey,
  };
  await using khala = await startServer(database.url, { engine, settings });
  const as = (sub: string, scopes: string[]) => khala.token({ org_id: "acme", sub, scopes });
  const [ada, bob, operator] = await Promise.all([
    as("ada", ["chat"]),
    as("bob", ["chat"]),
    as("olga", ["ops"]),
  ]);
  const send = async (token: string, path: string, body: object, method = "POST") => {
    const headers = { "content-type": "application/json" };
    const response = await khala.request(path, token, { method, headers, body: JSON.stringify(body) });
    expect(response.ok, path).toBe(true);
    return response.status === 204 ? undefined : response.json();
  };
  const convId = newConv();
  const read = async () => (await khala.request(`/chat/${convId}`, bob)).text();
  const say = async (token: string, message: string) => {
    await send(token, "/chat", { conv_id: convId, message });
    await eventually("the answer", async () => (JSON.parse(await read()).run ? undefined : true));
  };
  const filesOf = (text: string) => [...new Set(text.match(/\/files\/[0-9a-f-]+/g))];
  const before = await objects();
  await say(bob, "Of Bob.");
  await send(bob, `/chat/${convId}/participants/ada`, { role: "member" }, "PUT");
  const ofBob = filesOf(await read());
  expect(ofBob).toHaveLength(2);
  await say(ada, "Of Ada.");
  const init = { method: "POST", headers: { "content-type": "text/plain" }, body: "Uploaded by Ada" };
  expect((await khala.request(`/files?conv_id=${convId}&name=a.txt`, ada, init)).status).toBe(201);
  expect(await objects()).toBe(before + 5);
  const ofAda = filesOf(await read()).filter((file) => !ofBob.includes(file));
  expect(ofAda).toHaveLength(2);

  const erase = async (dry_run: boolean) => {
    const answer = await send(operator, "/ops/v1/erase", { subject: "ada", dry_run, next: "conversations:" });
    return (answer as EraseResponseJson).erased?.find(({ what }) => what === "files")?.count;
  };
  expect(await erase(true)).toBe(3);
  expect(await erase(false)).toBe(3);
  expect(await objects()).toBe(before + 2);
  for (const file of ofAda) expect((await khala.request(file, bob)).status).toBe(404);
  for (const file of ofBob) expect((await khala.request(file, bob)).status).toBe(200);
  expect(filesOf(await read())).toEqual(ofBob);
});
