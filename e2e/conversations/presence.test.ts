import { RawClient } from "@khala/test-support/clients/clients";
import { until } from "@khala/test-support/kit/until";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { newConv } from "@khala/test-support/servers/ai_chat";
import { type ConversationServer, startConversations } from "@khala/test-support/servers/conversations";
import { afterAll, beforeAll, expect, test } from "vitest";
import { WebSocket } from "ws";

let database: TestDatabase;
let servers: [ConversationServer, ConversationServer];
beforeAll(async () => {
  database = await testDatabase();
  servers = [await startConversations(database.url), await startConversations(database.url)];
});
afterAll(async () => {
  for (const server of servers) await server[Symbol.asyncDispose]();
  await database[Symbol.asyncDispose]();
});

interface Frame {
  readonly type: string;
  readonly code?: string;
  readonly present?: { readonly subject: string; readonly device: string; readonly typing: boolean }[];
}

/** A socket on `/ws`, by hand. */
async function connect(server: ConversationServer, conv: string, params: string, token?: string) {
  const bearer = token ?? (await server.token());
  const url = `${server.url.replace("http", "ws")}/ws?conv_id=${conv}&token=${bearer}${params}`;
  const ws = new WebSocket(url);
  const frames: Frame[] = [];
  ws.on("message", (data) => frames.push(JSON.parse(String(data))));
  await until("hello", () => frames.some(({ type }) => type === "hello"));
  const last = () => frames.findLast(({ type }) => type === "presence")?.present;
  return {
    ws,
    frames,
    say: (frame: unknown) => ws.send(JSON.stringify(frame)),
    shows: (...people: string[]) =>
      until(`to see ${people}`, () => {
        const seen = last()?.map((of) => `${of.subject}@${of.device}${of.typing ? " types" : ""}`);
        return JSON.stringify(seen) === JSON.stringify(people);
      }),
    [Symbol.dispose]: () => ws.terminate(),
  };
}

test("sockets with a device see each other, and who types, across servers, on /ws and the channel", async () => {
  const conv = newConv();
  const [a, b] = servers;
  using laptop = await connect(a, conv, "&device=laptop");
  await laptop.shows("user-1@laptop");
  const member = {
    method: "PUT",
    body: '{"role":"viewer"}',
    headers: { "content-type": "application/json" },
  };
  expect((await a.request(`/chat/${conv}/participants/bob`, member)).status).toBe(200);
  const bob = await b.token({ sub: "bob" });
  using phone = await connect(b, conv, "&device=phone", bob);
  await laptop.shows("bob@phone", "user-1@laptop");
  await phone.shows("bob@phone", "user-1@laptop");
  phone.say({ type: "typing", typing: true });
  await laptop.shows("bob@phone types", "user-1@laptop");

  await using channel = await RawClient.connect(`${b.url.replace("http", "ws")}/socket`, {
    token: await b.token(),
  });
  expect(await channel.push(`conversation:${conv}`, "phx_join", { device: "desk" })).toMatchObject({
    status: "ok",
  });
  expect(await channel.push(`conversation:${conv}`, "typing", { typing: true })).toMatchObject({
    status: "ok",
  });
  await laptop.shows("bob@phone types", "user-1@desk types", "user-1@laptop");

  // A removed participant is neither shown nor shown to.
  expect((await a.request(`/chat/${conv}/participants/bob`, { method: "DELETE" })).status).toBe(200);
  await laptop.shows("user-1@desk types", "user-1@laptop");
  await until("the close", () => phone.ws.readyState === WebSocket.CLOSED);
  // Nothing of it is in the log.
  const { events } = (await (await a.request(`/chat/${conv}/log`)).json()) as { events: { event: object }[] };
  expect(events.flatMap(({ event }) => Object.keys(event))).toEqual([
    "participants_changed",
    "participants_changed",
  ]);
});

test("a socket without a device neither sees others nor is seen, and gets an error when it types", async () => {
  const conv = newConv();
  const [a] = servers;
  using shown = await connect(a, conv, "&presence=1");
  await until("itself", () => shown.frames.some(({ present }) => present?.length === 1));
  using plain = await connect(a, conv, "");
  plain.say({ type: "typing", typing: true });
  await until("the error", () => plain.frames.some(({ code }) => code === "invalid_request"));
  plain.say({ type: "typing" });
  await until("the second error", () => plain.frames.filter(({ code }) => code).length === 2);
  expect(plain.frames.map(({ type }) => type)).toEqual(["hello", "error", "error"]);
  expect(shown.frames.filter(({ type }) => type === "presence")).toHaveLength(1);
});
