import { once } from "node:events";
import { type AddressInfo, createConnection, type Socket } from "node:net";
import { testContext } from "@khala/test-support/kit/context";
import { ManualClock } from "@khala/test-support/kit/manual_clock";
import { until } from "@khala/test-support/kit/until";
import { noAudit } from "@khala/test-support/kit/viewer";
import { expect, test } from "vitest";
import { gatewayMetrics } from "../metrics.ts";
import { openHttp } from "./http.ts";

const SECOND = 1_000;

/** Reads the beginning of a body, gives it up, and never answers. */
async function refuse(body: AsyncIterable<Buffer>): Promise<never> {
  for await (const _ of body) break;
  return new Promise(() => {});
}

async function server() {
  const clock = new ManualClock();
  const context = await testContext({ clock });
  const { app } = openHttp(context, {
    verifier: { verify: () => Promise.reject(new Error("nobody is asked here")) },
    metrics: gatewayMetrics(context.telemetry.meter),
    maxBodyBytes: 1 << 20,
    readsPerOrg: 5,
    origins: [],
    audit: noAudit,
  });
  return { app, clock };
}

/** A server with three routes, and a connection that has begun to send a body. */
async function uploading(length: number, path = "/upload") {
  const { app, clock } = await server();
  app.post("/upload", async (request) => ({ got: JSON.stringify(request.body).length }));
  app.post("/early", { onRequest: async (_request, reply) => reply.code(401).send({}) }, () => "never");
  app.post("/refuse", { preParsing: (request) => refuse(request.raw) }, () => "never");
  await app.listen({ host: "127.0.0.1", port: 0 });
  const accepted = once(app.server, "connection") as Promise<[Socket]>;
  const client = createConnection((app.server.address() as AddressInfo).port, "127.0.0.1");
  let answer = "";
  client.on("data", (chunk) => {
    answer += chunk;
  });
  client.on("error", () => {});
  const [served] = await accepted;
  let sent = 0;
  const send = async (text: string) => {
    client.write(text);
    sent += text.length;
    await until("the server has read it", () => served.bytesRead === sent);
  };
  await send(
    `POST ${path} HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: ${length}\r\n\r\n`,
  );
  return {
    clock,
    send,
    answer: () => answer,
    closed: () => client.readyState === "closed",
    async [Symbol.asyncDispose]() {
      client.destroy();
      await app.close();
    },
  };
}

test("answers a body that stops arriving with 408, and closes the connection", async () => {
  await using upload = await uploading(1_000);
  await upload.send('"abc');
  await upload.clock.advance(12 * SECOND);
  await until("the end", upload.closed);
  expect(upload.answer()).toMatch(/^HTTP\/1\.1 408 /);
  expect(upload.answer()).toContain('"code":"idle_timeout"');
});

test("reads a slow but steady body to its end", async () => {
  await using upload = await uploading(22);
  for (const character of `"${"x".repeat(20)}"`) {
    await upload.clock.advance(8 * SECOND);
    await upload.send(character);
  }
  await until("the answer", () => upload.answer().includes('{"got":22}'));
  expect(upload.answer()).toMatch(/^HTTP\/1\.1 200 /);
});

test("closes a connection whose request was answered before its body arrived, when the body does not follow", async () => {
  await using upload = await uploading(1_000, "/early");
  await until("the answer", () => upload.answer().startsWith("HTTP/1.1 401 "));
  await upload.send('"abc');
  expect(upload.closed()).toBe(false);
  await upload.clock.advance(12 * SECOND);
  await until("the end", upload.closed);
});

test("does not take an idle connection after its answer for a slow body", async () => {
  await using upload = await uploading(3);
  await upload.send('"x"');
  await until("the answer", () => upload.answer().includes("got"));
  await upload.clock.advance(30 * SECOND);
  expect(upload.closed()).toBe(false);
});

test("leaves a request alone that its route has given up while the answer is under way", async () => {
  await using upload = await uploading(1_000, "/refuse");
  await upload.send('"abc');
  await upload.clock.advance(2 * SECOND);
  expect(upload.answer()).toBe("");
});

test("leaves requests alone that come without a connection, as those of MCP tools do", async () => {
  const { app, clock } = await server();
  const slow = Promise.withResolvers<object>();
  const called = Promise.withResolvers<void>();
  app.post("/slow", () => {
    called.resolve();
    return slow.promise;
  });
  const answer = app.inject({ method: "POST", url: "/slow", payload: { a: 1 } });
  // It is sent when somebody waits for it.
  const sent = answer.then(({ statusCode }) => statusCode);
  await called.promise;
  await clock.advance(12 * SECOND);
  slow.resolve({});
  expect(await sent).toBe(200);
  await clock.advance(12 * SECOND);
  await app.close();
});
