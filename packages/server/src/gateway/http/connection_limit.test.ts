import { once } from "node:events";
import { createServer } from "node:http";
import { type AddressInfo, createConnection, type Socket } from "node:net";
import { until } from "@khala/test-support/kit/until";
import { expect, test } from "vitest";
import { limitConnections } from "./connection_limit.ts";

async function serverWith(limit: number) {
  let refused = 0;
  const http = createServer((_request, response) => response.end("served"));
  const connections = limitConnections(http, limit, () => refused++);
  await new Promise<void>((resolve) => http.listen(0, "127.0.0.1", resolve));
  const { port } = http.address() as AddressInfo;
  const clients: Socket[] = [];
  return {
    connections,
    refused: () => refused,
    /** Connects, and resolves with the server's end too. */
    async connect() {
      const accepted = once(http, "connection") as Promise<[Socket]>;
      const client = createConnection(port, "127.0.0.1").on("error", () => {});
      clients.push(client);
      const [served] = await accepted;
      return { client, served };
    },
    async [Symbol.asyncDispose]() {
      for (const client of clients) client.destroy();
      await new Promise((resolve) => http.close(resolve));
    },
  };
}

async function isServed({ client }: { client: Socket }): Promise<boolean> {
  let answer = "";
  client.on("data", (chunk) => {
    answer += chunk;
  });
  client.write("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
  await until("an answer or the end", () => answer.includes("served") || client.readyState === "closed");
  return answer.includes("served");
}

test("closes connections of an address over the limit; a closed one frees its slot", async () => {
  await using server = await serverWith(2);
  const first = await server.connect();
  const second = await server.connect();
  expect(await isServed(await server.connect())).toBe(false);
  expect(server.refused()).toBe(1);
  expect([await isServed(first), await isServed(second)]).toEqual([true, true]);
  const closed = once(first.served, "close");
  first.client.destroy();
  await closed;
  expect(await isServed(await server.connect())).toBe(true);
});

test("does not count an authenticated connection, nor release it twice when it closes", async () => {
  await using server = await serverWith(1);
  const first = await server.connect();
  server.connections.release(first.served);
  const second = await server.connect();
  expect(await isServed(second)).toBe(true);
  const closed = once(first.served, "close");
  first.client.destroy();
  await closed;
  expect(await isServed(await server.connect())).toBe(false);
});

test("0 means no limit", async () => {
  await using server = await serverWith(0);
  const open = [];
  for (let i = 0; i < 20; i++) open.push(await server.connect());
  for (const each of open) expect(await isServed(each)).toBe(true);
});
