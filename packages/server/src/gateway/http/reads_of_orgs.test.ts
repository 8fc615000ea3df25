import { once } from "node:events";
import { type AddressInfo, createConnection } from "node:net";
import { Readable } from "node:stream";
import { testContext } from "@khala/test-support/kit/context";
import { until } from "@khala/test-support/kit/until";
import { noAudit, testViewer } from "@khala/test-support/kit/viewer";
import { expect, test } from "vitest";
import { gatewayMetrics } from "../metrics.ts";
import { openHttp } from "./http.ts";

const READS = 2;
/** More than the buffers of a socket hold. */
const LARGE = 64 << 20;

/** A server whose requests are answered when the test says so. A request comes from its `x-org`. */
async function serve() {
  const context = await testContext();
  const http = openHttp(context, {
    verifier: { verify: () => Promise.reject(new Error("nobody is asked here")) },
    recognise: ({ headers }) => testViewer({ org: String(headers["x-org"]), scopes: ["chat"] }),
    metrics: gatewayMetrics(context.telemetry.meter),
    maxBodyBytes: 1 << 20,
    readsPerOrg: READS,
    origins: [],
    audit: noAudit,
  });
  const begun: { readonly org: string; answer(): void }[] = [];
  const work = ({ org }: { org: string }) =>
    new Promise((resolve) => begun.push({ org, answer: () => resolve({}) }));
  http.route("conversation.read", "GET", "/read", work);
  http.route("conversation.write", "POST", "/write", work);
  http.route("conversation.read", "GET", "/large", async (_, _request, reply) =>
    reply.send(Readable.from([Buffer.alloc(LARGE)])),
  );
  http.route("conversation.read", "GET", "/stream", work, { waits: true });
  await http.app.listen({ host: "127.0.0.1", port: 0 });
  const { port } = http.app.server.address() as AddressInfo;
  return {
    port,
    begunOf: (org: string) => begun.filter((each) => each.org === org).length,
    answerAll() {
      for (const { answer } of begun.splice(0)) answer();
    },
    send: (org: string, method: string, path: string) =>
      fetch(`http://127.0.0.1:${port}${path}`, { method, headers: { "x-org": org } }),
    async [Symbol.asyncDispose]() {
      http.app.server.closeAllConnections();
      await http.app.close();
    },
  };
}

test("reads of one org wait for each other, and not those of another org", async () => {
  await using server = await serve();
  const reads = Array.from({ length: READS + 1 }, () => server.send("acme", "GET", "/read"));
  await until("as many as allowed have begun", () => server.begunOf("acme") === READS);
  const other = server.send("globex", "GET", "/read");
  await until("the other org's has begun", () => server.begunOf("globex") === 1);
  expect(server.begunOf("acme")).toBe(READS);
  server.answerAll();
  expect((await other).status).toBe(200);
  await until("the last one has begun", () => server.begunOf("acme") === 1);
  server.answerAll();
  expect((await Promise.all(reads)).map(({ status }) => status)).toEqual([200, 200, 200]);
});

test("writes and streams do not wait for the reads of their org", async () => {
  await using server = await serve();
  const reads = Array.from({ length: READS }, () => server.send("acme", "GET", "/read"));
  await until("as many as allowed have begun", () => server.begunOf("acme") === READS);
  const others = [server.send("acme", "POST", "/write"), server.send("acme", "GET", "/stream")];
  await until("they have begun", () => server.begunOf("acme") === READS + 2);
  server.answerAll();
  await Promise.all([...reads, ...others]);
});

test("a read whose client has left while it waited is not done", async () => {
  await using server = await serve();
  const reads = Array.from({ length: READS }, () => server.send("acme", "GET", "/read"));
  await until("as many as allowed have begun", () => server.begunOf("acme") === READS);
  const leaving = createConnection(server.port, "127.0.0.1");
  await once(leaving, "connect");
  leaving.write("GET /read HTTP/1.1\r\nHost: h\r\nx-org: acme\r\n\r\n");
  leaving.end();
  await once(leaving.resume(), "close");
  const last = server.send("acme", "GET", "/read");
  server.answerAll();
  await Promise.all(reads);
  await until("the last one has begun", () => server.begunOf("acme") === 1);
  server.answerAll();
  expect((await last).status).toBe(200);
});

test("clients that do not read their answers hold no place of their org", async () => {
  await using server = await serve();
  const slow = Array.from({ length: READS }, () => createConnection(server.port, "127.0.0.1"));
  for (const socket of slow) {
    socket.write("GET /large HTTP/1.1\r\nHost: h\r\nx-org: acme\r\n\r\n");
    await once(socket, "readable");
  }
  const read = server.send("acme", "GET", "/read");
  await until("it has begun", () => server.begunOf("acme") === 1);
  server.answerAll();
  expect((await read).status).toBe(200);
  for (const socket of slow) socket.destroy();
});
