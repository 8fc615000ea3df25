import { createClient, type KhalaClient } from "@khala/client";
import { indexedDb } from "@khala/client/storage";

const TOPIC = "runtime.run_summaries";
let client: KhalaClient;
let conversation: ReturnType<KhalaClient["conversation"]> | undefined;

/** Opens a client as an app does, and follows a conversation, or without one a topic. */
function start(token: string, convId?: string, url = location.origin): void {
  client = createClient({ url, token, storage: indexedDb() });
  conversation = convId === undefined ? undefined : client.conversation(convId);
  if (conversation) conversation.subscribe(note);
  else client.sync.subscribe(TOPIC, () => {});
}

/** Every text the conversation has shown. */
const shown: string[] = [];

function text(): string {
  const { messages = [] } = conversation?.state() ?? {};
  return messages.map(({ parts = [] }) => parts.map(({ text: part = "" }) => part).join("")).join("|");
}

function note(): void {
  if (text() !== shown.at(-1)) shown.push(text());
}

/** The current text on the screen. */
function screen() {
  const { items, phase } = client.sync.list(TOPIC);
  const documents = Object.fromEntries(items.map(({ key, version }) => [key, version]));
  return { ...client.connection.status(), phase, documents };
}

declare const location: { readonly origin: string };
const health = () => conversation?.state().health;
const fromDevice = () => conversation?.state().fromDevice;
const send = (message: string) => conversation?.send(message);
Object.assign(globalThis, { khalaTabs: { start, screen, text, shown, send, health, fromDevice } });
