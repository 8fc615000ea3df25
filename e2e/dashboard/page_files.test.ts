import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { request as httpRequest } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { buffer } from "node:stream/consumers";
import { brotliCompressSync, gzipSync } from "node:zlib";
import { createKhala, type Khala, readConfig } from "@khala/server";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { afterAll, beforeAll, expect, test } from "vitest";

const PAGE = "<!doctype html><title>Khala</title><script type=module src=/assets/main-1.js></script>";
const SCRIPT = "document.body.append('hello')";

let database: TestDatabase;
let folder: string;
let khala: Khala;
beforeAll(async () => {
  database = await testDatabase();
  folder = await mkdtemp(join(tmpdir(), "khala-dashboard-"));
  await mkdir(join(folder, "dist", "assets"), { recursive: true });
  const put = (name: string, content: string | Buffer) => writeFile(join(folder, name), content);
  await put("secret.txt", "not yours");
  await put("dist/index.html", PAGE);
  await put("dist/icon.svg", "<svg/>");
  await put("dist/assets/main-1.js", SCRIPT);
  await put("dist/assets/main-1.js.br", brotliCompressSync(SCRIPT));
  await put("dist/assets/main-1.js.gz", gzipSync(SCRIPT));
  khala = await start(join(folder, "dist"));
});
afterAll(async () => {
  await khala.stop();
  await database[Symbol.asyncDispose]();
  await rm(folder, { recursive: true });
});

function start(dashboard?: string): Promise<Khala> {
  const config = readConfig({
    DATABASE_URL: database.url,
    KHALA_PORT: "0",
    KHALA_LOG_LEVEL: "silent",
    KHALA_AUTH_SECRETS: `test:${Buffer.alloc(32, 7).toString("base64")}`,
  });
  return createKhala({ models: [] }, { config, dev: true, ...(dashboard && { dashboard }) });
}

interface Answer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly body: Buffer;
}

/** A request whose path is sent as it is: fetch would tidy it up first, and unpack the answer. */
function ask(path: string, { method = "GET", headers = {} } = {}): Promise<Answer> {
  const { hostname, port } = new URL(khala.url);
  return new Promise((resolve, reject) => {
    httpRequest({ hostname, port, path, method, headers }, async (response) => {
      resolve({ status: response.statusCode!, headers: response.headers, body: await buffer(response) });
    })
      .on("error", reject)
      .end();
  });
}

test.each(["/", "/sync", "/conversations", "/blackboard", "/operations", "/sync?topic=x&doc=y"])(
  "%s serves the page, which may run only its own scripts",
  async (path) => {
    const { status, headers, body } = await ask(path);
    expect(status).toBe(200);
    expect(body.toString()).toBe(PAGE);
    expect(headers).toMatchObject({
      "content-type": "text/html; charset=utf-8",
      "cache-control": "no-cache",
      "x-content-type-options": "nosniff",
    });
    const policy = String(headers["content-security-policy"]);
    expect(policy).toContain("default-src 'none'");
    expect(policy).toContain("script-src 'self';");
    expect(policy).not.toContain("script-src 'self' 'unsafe-inline'");
    expect(policy).toContain("frame-ancestors 'none'");
  },
);

test("assets are immutable, and not sent again to a browser that has them", async () => {
  const { status, headers, body } = await ask("/assets/main-1.js");
  expect({ status, text: body.toString() }).toEqual({ status: 200, text: SCRIPT });
  expect(headers["cache-control"]).toBe("public, max-age=31536000, immutable");
  expect(headers["content-type"]).toBe("text/javascript; charset=utf-8");
  expect(headers["x-content-type-options"]).toBe("nosniff");
  const again = await ask("/assets/main-1.js", { headers: { "if-none-match": String(headers.etag) } });
  expect({ status: again.status, length: again.body.length }).toEqual({ status: 304, length: 0 });
});

test("serves precompressed files to clients that accept them", async () => {
  const packed = async (accepts: string) => {
    const { headers, body } = await ask("/assets/main-1.js", { headers: { "accept-encoding": accepts } });
    return { encoding: headers["content-encoding"], vary: headers.vary, etag: headers.etag, body };
  };
  const br = await packed("gzip, deflate, br");
  const gzip = await packed("gzip, br;q=0");
  const plain = await packed("identity");
  expect(br).toMatchObject({ encoding: "br", vary: "Accept-Encoding", body: brotliCompressSync(SCRIPT) });
  expect(gzip).toMatchObject({ encoding: "gzip", body: gzipSync(SCRIPT) });
  expect(plain).toMatchObject({ encoding: undefined, body: Buffer.from(SCRIPT) });
  expect(new Set([br.etag, gzip.etag, plain.etag]).size).toBe(3);
});

test("HEAD returns only headers", async () => {
  for (const path of ["/", "/assets/main-1.js"]) {
    const { status, headers, body } = await ask(path, { method: "HEAD" });
    expect({ status, length: body.length }).toEqual({ status: 200, length: 0 });
    expect(headers.etag).toBeDefined();
  }
});

test.each([
  "/assets/../../secret.txt",
  "/assets/..%2f..%2fsecret.txt",
  "/assets/%2e%2e/%2e%2e/secret.txt",
  "/../secret.txt",
  "/assets/..\\..\\secret.txt",
  "/secret.txt",
  "/assets/",
  "/assets/main-1.js/",
  "/assets/main-2.js",
  "/sync/anything",
  "/elsewhere",
])("%s is not found", async (path) => {
  const { status, body } = await ask(path);
  expect(status).toBe(404);
  expect(body.toString()).not.toContain("not yours");
});

test("does not shadow routes of the API", async () => {
  expect((await ask("/healthz")).status).toBe(200);
  expect((await ask("/sync/v1/list/x")).status).toBe(401);
  expect((await ask("/blackboard/v1/agents")).status).toBe(401);
});

test("explains how to build the dashboard where it is not built", async () => {
  for (const dashboard of [undefined, join(folder, "nowhere")]) {
    const plain = await start(dashboard);
    const response = await fetch(plain.url);
    expect(await response.text()).toContain("npm run build");
    expect((await fetch(`${plain.url}/sync`)).status).toBe(404);
    await plain.stop();
  }
});
