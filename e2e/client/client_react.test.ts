import { createClient, type KhalaClient } from "@khala/client";
import { hooksOf, KhalaProvider, useConnection, useConversation } from "@khala/client/react";
import { until } from "@khala/test-support/kit/until";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { startTcpProxy } from "@khala/test-support/processes/tcp_proxy";
import { newConv } from "@khala/test-support/servers/ai_chat";
import { type ConversationServer, startConversations } from "@khala/test-support/servers/conversations";
import { RUNS, startServer, type TestServer } from "@khala/test-support/servers/servers";
import { parseHTML } from "linkedom";
import { createElement, type ReactNode, StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { afterAll, beforeAll, expect, test } from "vitest";

const { window } = parseHTML("<html><body></body></html>");
// React needs a document; the network stays that of Node.js.
Object.assign(globalThis, { window, document: window.document });

const { useDoc, useList } = hooksOf<{
  readonly documents?: { readonly [RUNS]: { title?: string; status?: string } };
}>();

let database: TestDatabase;
let server: TestServer;
let chat: ConversationServer;
beforeAll(async () => {
  database = await testDatabase();
  server = await startServer(database.url);
  chat = await startConversations(database.url);
});
afterAll(async () => {
  await chat[Symbol.asyncDispose]();
  await server[Symbol.asyncDispose]();
  await database[Symbol.asyncDispose]();
});

/** A page in Strict Mode, as a browser shows it. */
function openPage(client: KhalaClient, page: ReactNode) {
  const container = window.document.createElement("div");
  const root = createRoot(container);
  root.render(createElement(StrictMode, null, createElement(KhalaProvider, { client }, page)));
  return {
    shows: (html: string) =>
      until(html, () => container.innerHTML === html).catch((error) => {
        throw new Error(`${error.message} It shows ${container.innerHTML}`);
      }),
    async [Symbol.asyncDispose]() {
      root.unmount();
      await client.close();
    },
  };
}

function Runs() {
  const { state } = useConnection();
  const { data } = useDoc(RUNS, "run:a");
  const { items, phase } = useList(RUNS, {
    filter: ({ data: { status } }) => status === "running",
    select: ({ key }) => key,
  });
  return `${state} ${phase}: ${items.join()} (${data?.title ?? "no a"})`;
}

test("a page shows documents as they change, also after a disconnect", async () => {
  const { hostname, port } = new URL(server.url);
  await using proxy = await startTcpProxy({ host: hostname, port: Number(port) });
  const org = "org-1";
  const write = (key: string, version: number, payload: object) =>
    server.write({ key, version, org, payload });
  await write("run:a", 1, { title: "A", status: "running" });
  const client = createClient({ url: proxy.through(server.url), token: () => server.token({ org_id: org }) });
  await using page = openPage(client, createElement(Runs));
  await page.shows("live live: run:a (A)");
  await write("run:b", 1, { title: "B", status: "running" });
  await page.shows("live live: run:a,run:b (A)");
  proxy.cut();
  await write("run:a", 2, { title: "A again", status: "done" });
  await page.shows("live live: run:b (A again)");
});

function Chat({ id }: { readonly id: string }) {
  const { messages, run } = useConversation(id);
  const lines = messages.map(({ message_id, parts = [] }) =>
    createElement("p", { key: message_id }, parts.map(({ text }) => text).join("")),
  );
  return createElement("div", null, createElement("i", null, run ? "running" : "idle"), ...lines);
}

test("a page streams a conversation, and another page joins later", async () => {
  const id = newConv();
  const client = () => createClient({ url: chat.url, token: () => chat.token() });
  const first = client();
  await using page = openPage(first, createElement(Chat, { id }));
  await page.shows("<div><i>idle</i></div>");
  const { run_id } = await first.conversation(id).send("Hello?");
  const performance = await chat.engine.turn(run_id);
  performance.say("Hel");
  await page.shows("<div><i>running</i><p>Hello?</p><p>Hel</p></div>");
  await using later = openPage(client(), createElement(Chat, { id }));
  await later.shows("<div><i>running</i><p>Hello?</p><p>Hel</p></div>");
  performance.say("lo.");
  performance.finish();
  for (const open of [page, later]) await open.shows("<div><i>idle</i><p>Hello?</p><p>Hello.</p></div>");
  expect(chat.engine.turnCount(id)).toBe(1);
});
