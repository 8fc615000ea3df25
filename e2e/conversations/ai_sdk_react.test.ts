import { createRequire } from "node:module";
import { until } from "@khala/test-support/kit/until";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import {
  newConv,
  onStage,
  openTransport,
  TRANSPORTS,
  type TransportName,
  textOf,
} from "@khala/test-support/servers/ai_chat";
import { type ConversationServer, startConversations } from "@khala/test-support/servers/conversations";
import { parseHTML } from "linkedom";
import { afterAll, beforeAll, expect, test } from "vitest";

/** What is used of React, whose types are a package of their own. */
interface React {
  createElement(type: unknown, props: unknown, ...children: unknown[]): unknown;
}
interface ReactDom {
  createRoot(container: unknown): { render(element: unknown): void; unmount(): void };
}

const { window } = parseHTML("<html><body></body></html>");
// React needs a document; the network stays that of Node.js.
Object.assign(globalThis, { window, document: window.document });
const require = createRequire(import.meta.url);
const { createElement } = require("react") as React;
const { createRoot } = require("react-dom/client") as ReactDom;
const { useChat } = await import("@ai-sdk/react");

let database: TestDatabase;
let server: ConversationServer;
beforeAll(async () => {
  database = await testDatabase();
  server = await startConversations(database.url);
});
afterAll(async () => {
  await server[Symbol.asyncDispose]();
  await database[Symbol.asyncDispose]();
});

type Helpers = ReturnType<typeof useChat>;

interface PageProps {
  readonly id: string;
  readonly transport: ReturnType<typeof openTransport>;
  /** What the hook gave last. */
  readonly seen: { helpers?: Helpers };
}

function Page({ id, transport, seen }: PageProps) {
  const helpers = useChat({ id, transport, resume: true });
  seen.helpers = helpers;
  const lines = helpers.messages.map((message) =>
    createElement("p", { key: message.id }, `${message.role}: ${textOf(message)}`),
  );
  return createElement("div", {}, createElement("i", {}, helpers.status), ...lines);
}

/** A page with a chat on it, as a browser shows it. */
function openPage(name: TransportName, id: string) {
  const transport = openTransport(server, name);
  const container = window.document.createElement("div");
  const seen: PageProps["seen"] = {};
  const root = createRoot(container);
  root.render(createElement(Page, { id, transport, seen }));
  return {
    chat: () => until("the page", () => seen.helpers),
    shows: (html: string) => until(html, () => container.innerHTML === html),
    [Symbol.dispose]() {
      root.unmount();
      if ("close" in transport) transport.close();
    },
  };
}

test.each(TRANSPORTS)(
  "a page with useChat over %s streams, and a page opened later joins in",
  async (name) => {
    const id = newConv();
    using page = openPage(name, id);
    await page.shows("<div><i>ready</i></div>");
    void (await page.chat()).sendMessage({ text: "Hello?" });
    const performance = await onStage(server, id);
    performance.say("Hel");
    await page.shows("<div><i>streaming</i><p>user: Hello?</p><p>assistant: Hel</p></div>");
    using later = openPage(name, id);
    await later.shows("<div><i>streaming</i><p>assistant: Hel</p></div>");
    performance.say("lo.");
    performance.finish();
    await page.shows("<div><i>ready</i><p>user: Hello?</p><p>assistant: Hello.</p></div>");
    await later.shows("<div><i>ready</i><p>assistant: Hello.</p></div>");
    expect(server.engine.turnCount(id)).toBe(1);
  },
);

test.each(TRANSPORTS)("the stop button of a page with useChat over %s ends the answer", async (name) => {
  const id = newConv();
  using page = openPage(name, id);
  const chat = await page.chat();
  void chat.sendMessage({ text: "Talk" });
  const performance = await onStage(server, id);
  performance.say("Blah");
  await page.shows("<div><i>streaming</i><p>user: Talk</p><p>assistant: Blah</p></div>");
  await (await page.chat()).stop();
  if (name === "http") await server.request(`/ai/chat/${id}/stop`, { method: "POST" });
  await until("the stop", () => performance.signal.aborted);
  await page.shows("<div><i>ready</i><p>user: Talk</p><p>assistant: Blah</p></div>");
});
