import { KhalaError } from "@khala/contracts";
import { agent, runs } from "@khala/server";
import { RawClient, until } from "@khala/test-support/clients/clients";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { BOARD_SCOPES, type BoardServer, startBoard } from "@khala/test-support/servers/board_server";
import { afterAll, beforeAll, expect, test } from "vitest";
import WebSocket from "ws";

const TOO_LARGE = "9007199254740993";

const agents = [
  agent("editor", { consumes: "Raw" }),
  agent("adder", { consumes: "Sum", run: () => ({ type: "Total", payload: { total: [2 ** 60] } }) }),
];
let database: TestDatabase;
let server: BoardServer;
let token: string;
beforeAll(async () => {
  database = await testDatabase();
  server = await startBoard(database.url, { agents });
  token = await server.token({ scopes: [...BOARD_SCOPES, "runtime:write", "chat"] });
});
afterAll(async () => {
  await server[Symbol.asyncDispose]();
  await database[Symbol.asyncDispose]();
});

/** Posts text, because an object would be rounded here. */
async function post(path: string, body: string) {
  const headers = { authorization: `Bearer ${token}`, "content-type": "application/json" };
  const response = await fetch(server.url + path, { method: "POST", headers, body });
  return { status: response.status, body: (await response.json()) as { error?: { field?: string } } };
}

const refusal = (field: string) => ({
  code: "invalid_request",
  message: expect.stringMatching(/beyond ±9007199254740991.*as a string/),
  field,
});

test.each([
  ["/blackboard/v1/artifacts", `{"type":"Note","payload":{"a":[1,${TOO_LARGE}]}}`, "payload.a[1]"],
  [
    "/blackboard/v1/artifacts",
    `{"artifacts":[{"type":"Note","payload":-123456789012345678901234567890}]}`,
    "artifacts[0].payload",
  ],
  // Exact as a double, but it is stored and shown as an integer.
  ["/blackboard/v1/artifacts", `{"type":"Note","payload":{"a":1e17}}`, "payload.a"],
  [
    "/runtime/v1/runs/run-1/events",
    `{"events":[{"event_id":"e1","type":"run.started","data":{"title":${TOO_LARGE}}}]}`,
    "events[0].data.title",
  ],
  ["/runtime/v1/runs/run-1/events", `{"expected_seq":${TOO_LARGE},"events":[]}`, "expected_seq"],
  ["/chat", `{"conv_id":"c-1","message":"hi","params":{"n":${TOO_LARGE}}}`, "params.n"],
])("POST %s refuses %s", async (path, body, field) => {
  const answer = await post(path, body);
  expect(answer).toMatchObject({ status: 400, body: { error: refusal(field) } });
});

test("accepts strings, floats and safe integers", async () => {
  const payload = `{"id":"${TOO_LARGE}","pi":3.14159265358979323846,"far":1e300,"most":9007199254740991}`;
  const { status } = await post("/blackboard/v1/artifacts", `{"type":"Note","payload":${payload}}`);
  expect(status).toBe(201);
});

test("refuses a body that is not JSON, or that names __proto__", async () => {
  for (const body of ["{", "", '{"type":"Note","payload":{"__proto__":1}}'])
    expect(await post("/blackboard/v1/artifacts", body)).toMatchObject({ status: 400 });
});

test("refuses a worker's settlement, and keeps its claim", async () => {
  await server.publish({ type: "Raw", payload: 1 });
  const { claim_id } = await server.claim("editor");
  const path = `/blackboard/v1/claims/${claim_id}/settle`;
  const refused = await post(path, `{"outputs":[{"type":"Done","payload":{"n":${TOO_LARGE}}}]}`);
  expect(refused).toMatchObject({ status: 400, body: { error: refusal("outputs[0].payload.n") } });
  expect((await post(path, '{"outputs":[]}')).status).toBe(200);
});

test("makes a dead letter of an agent's output, with the field", async () => {
  await server.publish({ type: "Sum", payload: 1 });
  const [letter] = await server.deadLetters("adder", 1);
  expect(letter!.failure!.message).toContain("outputs[0].payload.total[0] is an integer beyond");
});

test("publish and append in process refuse unsafe numbers and bigints", async () => {
  const caller = { subject: "user-1", org: "org-1", scopes: new Set(BOARD_SCOPES) };
  const publish = (n: unknown) =>
    server.khala.blackboard.publish(caller, [{ type: "Note", payload: { n } } as never]);
  const append = (n: unknown) =>
    server.khala.authority.append({
      stream: runs,
      streamId: "run-2",
      events: [{ event_id: "e", type: "run.started", data: { title: n } as never }],
      org: "org-1",
      actor: "user-1",
    });
  for (const n of [2 ** 53, -(2 ** 60), 5n]) {
    await expect(publish(n)).rejects.toMatchObject({
      code: "invalid_request",
      details: { field: "artifacts[0].payload.n" },
    });
    await expect(append(n)).rejects.toBeInstanceOf(KhalaError);
  }
  await expect(append(2 ** 53)).rejects.toMatchObject({ details: { field: "events[0].data.title" } });
});

test("refuses a push on a Phoenix channel, and keeps the channel joined", async () => {
  await using client = await RawClient.connect(`${server.url.replace("http", "ws")}/socket`, { token });
  await client.push("conversation:c-2", "phx_join");
  const ref = "900";
  client.send(`[null,"${ref}","conversation:c-2","chat",{"message":"hi","params":{"n":${TOO_LARGE}}}]`);
  const reply = await until("a reply", () => client.received.find((each) => each.ref === ref), {
    on: client,
  });
  expect(reply.payload).toMatchObject({ status: "error", response: { error: refusal("params.n") } });
  expect(await client.push("conversation:c-2", "state")).toMatchObject({ status: "ok" });
});

test("refuses a request on the AI SDK's socket with the field", async () => {
  const socket = new WebSocket(`${server.url.replace("http", "ws")}/ai/ws?token=${token}`);
  const answers = Promise.withResolvers<unknown>();
  socket.on("message", (data) => answers.resolve(JSON.parse(String(data))));
  socket.on("open", () =>
    socket.send(`{"type":"send","requestId":"r","id":"c-3","messages":[],"body":{"n":${TOO_LARGE}}}`),
  );
  expect(await answers.promise).toMatchObject({
    requestId: "r",
    type: "error",
    errorText: expect.stringContaining("body.n is an integer beyond"),
  });
  socket.terminate();
});
