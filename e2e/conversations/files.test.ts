import { randomBytes, randomUUID } from "node:crypto";
import { request as httpRequest } from "node:http";
import type { StoredFileJson } from "@khala/contracts/conversation/v1";
import { until } from "@khala/test-support/kit/until";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { newConv } from "@khala/test-support/servers/ai_chat";
import { type ConversationServer, startConversations } from "@khala/test-support/servers/conversations";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

const MAX = 2 << 20;
const PNG = Buffer.concat([Buffer.from("\x89PNG\r\n\x1a\n", "latin1"), randomBytes(700_000)]);

let database: TestDatabase;
let server: ConversationServer;
beforeAll(async () => {
  database = await testDatabase();
  server = await startConversations(database.url, { settings: { KHALA_FILE_MAX_BYTES: String(MAX) } });
});
afterAll(async () => {
  await server[Symbol.asyncDispose]();
  await database[Symbol.asyncDispose]();
});

type Body = string | Uint8Array<ArrayBuffer>;

interface Upload {
  readonly name?: string;
  readonly type?: string;
  readonly token?: string;
}

function upload(convId: string, body: Body, { name, type, token }: Upload = {}): Promise<Response> {
  const query = new URLSearchParams({ conv_id: convId, ...(name !== undefined && { name }) });
  const headers = { "content-type": type ?? "application/octet-stream" };
  return server.request(`/files?${query}`, { method: "POST", body, headers }, token);
}

async function stored(convId: string, body: Body, more: Upload = {}): Promise<Required<StoredFileJson>> {
  const response = await upload(convId, body, more);
  if (response.status !== 201) throw new Error(`${response.status} ${await response.text()}`);
  return (await response.json()) as Required<StoredFileJson>;
}

const chunksLeft = async () => {
  const [row] = await database.database.query<{ n: bigint }>({
    text: "SELECT (SELECT count(*) FROM runtime.file_chunks) + (SELECT count(*) FROM runtime.files) AS n",
  });
  return Number(row!.n);
};

test("stores a file with the type of its bytes, and returns it unchanged", async () => {
  const file = await stored(newConv(), PNG, { name: "Käse.png", type: "image/jpeg" });
  expect(file).toEqual({
    file_id: expect.any(String),
    url: `/files/${file.file_id}`,
    media_type: "image/png",
    name: "Käse.png",
    size: String(PNG.length),
    created_at: expect.stringMatching(/^\d{4}-.*Z$/),
  });
  const response = await server.request(file.url);
  expect(response.status).toBe(200);
  expect(Object.fromEntries(response.headers)).toMatchObject({
    "content-type": "image/png",
    "content-length": String(PNG.length),
    "content-disposition": `inline; filename="K_se.png"; filename*=UTF-8''K%C3%A4se.png`,
    "x-content-type-options": "nosniff",
    "content-security-policy": "sandbox; default-src 'none'",
    "accept-ranges": "bytes",
    etag: `"${file.file_id}"`,
  });
  expect(Buffer.compare(Buffer.from(await response.arrayBuffer()), PNG)).toBe(0);
});

test("serves a file that can contain a script only as a download", async () => {
  for (const [body, type] of [
    ["<html><script>alert(1)</script>", "text/html"],
    ["<svg onload='alert(1)'/>", "image/svg+xml"],
    ["{}", "application/json"],
  ] as const) {
    const { url } = await stored(newConv(), body, { type });
    const { headers } = await server.request(url);
    expect(headers.get("content-disposition")).toMatch(/^attachment;/);
    expect(headers.get("content-type")).toContain(type);
  }
});

describe("a part of a file", () => {
  test("can be read by a valid range only", async () => {
    const { url, file_id } = await stored(newConv(), PNG);
    const size = PNG.length;
    const cases: [string, number, string | null, Buffer?][] = [
      ["bytes=0-0", 206, `bytes 0-0/${size}`, PNG.subarray(0, 1)],
      ["bytes=262140-262150", 206, `bytes 262140-262150/${size}`, PNG.subarray(262_140, 262_151)],
      [`bytes=${size - 3}-`, 206, `bytes ${size - 3}-${size - 1}/${size}`, PNG.subarray(-3)],
      ["bytes=-5", 206, `bytes ${size - 5}-${size - 1}/${size}`, PNG.subarray(-5)],
      [`bytes=0-${size * 2}`, 206, `bytes 0-${size - 1}/${size}`, PNG],
      [`bytes=${size}-`, 416, `bytes */${size}`],
      ["bytes=-0", 416, `bytes */${size}`],
      ["bytes=0-1,5-6", 200, null, PNG],
      ["bytes=5-1", 200, null, PNG],
      ["pages=1-2", 200, null, PNG],
    ];
    for (const [range, status, contentRange, expected] of cases) {
      const response = await server.request(url, { headers: { range } });
      expect([range, response.status, response.headers.get("content-range")]).toEqual([
        range,
        status,
        contentRange,
      ]);
      const bytes = Buffer.from(await response.arrayBuffer());
      if (expected) expect(Buffer.compare(bytes, expected), range).toBe(0);
      else expect(JSON.parse(String(bytes)).error).toMatchObject({ field: "range" });
    }
    const part = async (ifRange: string) =>
      (await server.request(url, { headers: { range: "bytes=0-0", "if-range": ifRange } })).status;
    expect([await part(`"${file_id}"`), await part('"another"')]).toEqual([206, 200]);
  });

  test("is not read when only its headers are requested", async () => {
    const { url, file_id } = await stored(newConv(), PNG);
    const head = await server.request(url, { method: "HEAD" });
    expect(head.status).toBe(200);
    expect(head.headers.get("content-length")).toBe(String(PNG.length));
    expect(await head.text()).toBe("");
    const known = await server.request(url, { headers: { "if-none-match": `W/"${file_id}"` } });
    expect([known.status, await known.text()]).toEqual([304, ""]);
  });
});

test("a caller who may not read the conversation gets the same answer as for a missing file", async () => {
  const conv = newConv();
  const { url, file_id } = await stored(conv, "secret");
  const strangers = [
    await server.token({ sub: "user-2" }),
    await server.token({ org_id: "org-2", scopes: ["chat", "chat:service"] }),
  ];
  for (const token of strangers) {
    const refused = await server.request(url, {}, token);
    const missing = await server.request(`/files/${randomUUID()}`, {}, token);
    expect(refused.status).toBe(404);
    const [body, other] = [await refused.text(), await missing.text()];
    expect(body.replace(file_id, "x")).toBe(other.replace(/[0-9a-f-]{36}/, "x"));
  }
  const service = await server.token({ sub: "bot", scopes: ["chat:service"] });
  expect((await server.request(url, {}, service)).status).toBe(200);
  expect((await upload(conv, "mine?", { token: strangers[0]! })).status).toBe(404);
  expect((await fetch(server.url + url)).status).toBe(401);
});

test("refuses an invalid file with the field, and stores nothing", async () => {
  const before = await chunksLeft();
  const large = new Uint8Array(MAX + 1);
  const cases: [Promise<Response>, number, string][] = [
    [upload("no id", "x"), 400, "conv_id"],
    [upload(newConv(), ""), 400, "body"],
    [upload(newConv(), "x", { name: "a\nb" }), 400, "name"],
    [upload(newConv(), large), 413, "body"],
  ];
  for (const [sent, status, field] of cases) {
    const response = await sent;
    expect([response.status, ((await response.json()) as { error: { field: string } }).error.field]).toEqual([
      status,
      field,
    ]);
  }
  expect(await chunksLeft()).toBe(before);
  const path = await stored(newConv(), "x", { name: "C:\\fakepath\\a b.txt" });
  expect(path.name).toBe("a b.txt");
});

test("an aborted upload leaves nothing", async () => {
  const before = await chunksLeft();
  const token = await server.token();
  const sending = httpRequest(`${server.url}/files?conv_id=${newConv()}`, {
    method: "POST",
    headers: { authorization: `Bearer ${token}`, "content-length": "1500000" },
  });
  sending.on("error", () => {});
  sending.write(randomBytes(1_000_000));
  await until("the first bytes are stored", async () => (await chunksLeft()) > before);
  sending.destroy();
  await until("nothing is left", async () => (await chunksLeft()) === before);
});

test("a message names files, and the engine reads them", async () => {
  const conv_id = newConv();
  const file = await stored(conv_id, PNG, { name: "cat.png" });
  const parts = [{ text: "What is this?" }, { file: { url: file.url } }];
  const post = (body: object) =>
    server.request("/chat", { method: "POST", body: JSON.stringify({ conv_id, ...body }) });
  const { run_id } = (await (await post({ parts, params: { tone: "dry" } })).json()) as { run_id: string };
  const answer = await server.engine.turn(run_id);
  const { turn } = answer;
  expect(turn).toMatchObject({
    message: "What is this?",
    parts: [parts[0], { file: { url: file.url, media_type: "image/png", name: "cat.png" } }],
    params: { tone: "dry" },
    sender: "user-1",
  });
  expect((await turn.readFile(file.url)).bytes).toHaveLength(PNG.length);
  answer.finish();
  await server.settled(conv_id);
  expect((await server.state(conv_id)).messages![0]!.parts).toEqual(turn.parts);

  const cases: [object, number, string][] = [
    [{}, 400, "message"],
    [{ message: "a", parts: [{ text: "b" }] }, 400, "parts"],
    [{ parts: [{ text: "" }] }, 400, "parts[0].text"],
    [{ parts: [{ text: "a" }, { reasoning: "b" }] }, 400, "parts[1]"],
    [{ parts: [{ file: { url: `/files/${randomUUID()}` } }] }, 404, "parts[0].file.url"],
    [{ message: "a", params: [] }, 400, "params"],
    [{ parts: [{ file: { url: "ftp://files.example/a" } }] }, 400, "parts[0].file.url"],
  ];
  for (const [body, status, field] of cases) {
    const response = await post(body);
    const { error } = (await response.json()) as { error: { field: string } };
    expect([body, response.status, error.field]).toEqual([body, status, field]);
  }
});

test("deletes the files of a conversation with it", async () => {
  const before = await chunksLeft();
  const conv = newConv();
  const { url } = await stored(conv, PNG);
  expect((await server.request(`/chat/${conv}`, { method: "DELETE" })).status).toBe(204);
  expect((await server.request(url)).status).toBe(404);
  expect(await chunksLeft()).toBe(before);
});
