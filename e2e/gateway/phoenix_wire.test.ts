import { RawClient, until } from "@khala/test-support/clients/clients";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { RUNS, startServer, type TestServer } from "@khala/test-support/servers/servers";
import { afterAll, beforeAll, expect, test } from "vitest";

let database: TestDatabase;
let server: TestServer;
beforeAll(async () => {
  database = await testDatabase();
  server = await startServer(database.url);
});
afterAll(async () => {
  await server[Symbol.asyncDispose]();
  await database[Symbol.asyncDispose]();
});

test("a rejoin sends phx_close with the old join_ref before the new reply", async () => {
  await using raw = await RawClient.connect(server.socketUrl, { token: await server.token() });
  await raw.join();
  const [first] = raw.received;
  await raw.join();
  const [, close, reply] = raw.received;
  expect(close).toMatchObject({
    event: "phx_close",
    joinRef: first!.joinRef,
    ref: first!.joinRef,
    payload: {},
  });
  expect(reply).toMatchObject({ event: "phx_reply", payload: { status: "ok" } });
  expect(reply!.joinRef).not.toBe(first!.joinRef);
});

test("answers a leave with ok and phx_close, and a leave without a join with ok only", async () => {
  await using raw = await RawClient.connect(server.socketUrl, { token: await server.token() });
  await raw.join();
  const { joinRef } = raw.received[0]!;
  expect(await raw.push("sync:v1", "phx_leave")).toEqual({ status: "ok", response: {} });
  await until("phx_close", () => raw.received.length === 3, { on: raw });
  expect(raw.received[2]).toMatchObject({ event: "phx_close", joinRef, ref: joinRef, payload: {} });
  expect(await raw.push("never:joined", "phx_leave")).toEqual({ status: "ok", response: {} });
  await raw.push("phoenix", "heartbeat");
  expect(raw.received.filter(({ event }) => event === "phx_close")).toHaveLength(1);
});

test("a leave of an earlier join does not end the later one", async () => {
  await using raw = await RawClient.connect(server.socketUrl, { token: await server.token() });
  await raw.join();
  const { joinRef: old } = raw.received[0]!;
  await raw.join();
  raw.cast("sync:v1", "phx_leave", {}, old);
  expect(await raw.push("sync:v1", "heartbeat")).toMatchObject({ status: "ok" });
});

test("answers unmatched to a push without a join, or with the join_ref of an earlier join", async () => {
  await using raw = await RawClient.connect(server.socketUrl, { token: await server.token() });
  const unmatched = { status: "error", response: { reason: "unmatched topic" } };
  expect(await raw.push("sync:v1", "subscribe", { topics: [RUNS] })).toEqual(unmatched);
  await raw.join();
  const { joinRef: old } = raw.received.at(-1)!;
  await raw.join();
  const ref = raw.cast("sync:v1", "heartbeat", {}, old);
  const reply = await until("the reply", () => raw.received.find((frame) => frame.ref === ref), {
    on: raw,
  });
  expect(reply).toMatchObject({ joinRef: old, payload: unmatched });
});

test("answers a heartbeat without a join_ref", async () => {
  await using raw = await RawClient.connect(server.socketUrl, { token: await server.token() });
  raw.send('[null,"hb","phoenix","heartbeat",{}]');
  await until("the answer", () => raw.received.length, { on: raw });
  expect(String(raw.received[0]!.raw)).toBe(
    '[null,"hb","phoenix","phx_reply",{"status":"ok","response":{}}]',
  );
});

test("answers an unknown event with the known ones", async () => {
  await using raw = await RawClient.connect(server.socketUrl, { token: await server.token() });
  await raw.join();
  const { status, response } = await raw.push("sync:v1", "shout", {});
  expect({ status, response }).toMatchObject({
    status: "error",
    response: { error: { code: "invalid_request" } },
  });
  expect(await raw.push("phoenix", "shout")).toMatchObject({ status: "error" });
});
