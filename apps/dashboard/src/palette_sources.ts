import type { KhalaClient } from "@khala/client";
import type { Command, CommandSource } from "./parts/command_palette.tsx";
import { shortenMiddle } from "./parts/id.tsx";
import { hrefTo, links, ROOMS, type RoomName } from "./router.ts";
import { appWords as words } from "./strings/app.ts";

type Searched = Pick<KhalaClient, "ops" | "board" | "conversations">;

const EACH = 6;

/** Everything that ⌘K searches. */
export function paletteSources(khala: Searched, actions: readonly Command[]): readonly CommandSource[] {
  return [
    { group: words.group.pages, find: (query) => pages().filter((page) => includes(page.label, query)) },
    { group: words.group.documents, find: (query) => (query.length < 2 ? [] : documents(khala, query)) },
    { group: words.group.conversations, find: (query) => conversations(khala, query) },
    { group: words.group.agents, find: (query) => agents(khala, query) },
    { group: words.group.artifacts, find: (query) => (query.length < 2 ? [] : artifacts(khala, query)) },
    {
      group: words.group.actions,
      find: (query) => actions.filter((action) => includes(action.label, query)),
    },
  ];
}

const includes = (text: string | undefined, query: string) =>
  (text ?? "").toLowerCase().includes(query.toLowerCase());

function pages(): Command[] {
  const rooms = Object.keys(ROOMS).map((name) => {
    const room = name as RoomName;
    return { id: room, label: words.room[room], icon: room, href: ROOMS[room] };
  });
  const { page } = words;
  return [
    ...rooms,
    { id: "parity", label: page.parity, icon: "sync", href: links.parity() },
    { id: "dead", label: page.deadLetters, icon: "blackboard", href: links.deadLetters() },
    { id: "sockets", label: page.sockets, icon: "operations", href: links.sockets() },
    { id: "closes", label: page.closes, icon: "operations", href: links.closes() },
    { id: "errors", label: page.errors, icon: "operations", href: links.errors() },
    { id: "traces", label: page.traces, icon: "operations", href: hrefTo("operations", { tab: "traces" }) },
    { id: "config", label: page.config, icon: "operations", href: links.config() },
  ];
}

async function documents(khala: Searched, query: string): Promise<Command[]> {
  const { topics = [] } = await khala.ops.topics();
  const found = await Promise.allSettled(
    topics.map(async ({ topic = "" }) => {
      const page = await khala.ops.documents({ topic, search: query, limit: EACH });
      return (page.documents ?? []).map(
        ({ doc_key = "" }): Command => ({
          id: `doc-${doc_key}`,
          label: doc_key,
          hint: topic,
          icon: "sync",
          href: links.document(topic, doc_key),
        }),
      );
    }),
  );
  // A topic that the token does not allow has nothing to find.
  return found.flatMap((answer) => (answer.status === "fulfilled" ? answer.value : [])).slice(0, EACH);
}

async function conversations(khala: Searched, query: string): Promise<Command[]> {
  const { conversations: all = [] } = await khala.conversations.list({ limit: 100 });
  return all
    .filter(({ conv_id, title }) => includes(conv_id, query) || includes(title, query))
    .slice(0, EACH)
    .map(({ conv_id = "", title }) => ({
      id: `conv-${conv_id}`,
      label: title || conv_id,
      hint: shortenMiddle(conv_id, 14),
      icon: "conversations",
      href: links.conversation(conv_id),
    }));
}

async function agents(khala: Searched, query: string): Promise<Command[]> {
  const { agents: all = [] } = await khala.board.agents();
  return all
    .filter(({ name }) => includes(name, query))
    .slice(0, EACH)
    .map(({ name = "", state }) => ({
      id: `agent-${name}`,
      label: name,
      icon: "blackboard",
      href: links.agent(name),
      ...(state !== undefined && { hint: state }),
    }));
}

async function artifacts(khala: Searched, query: string): Promise<Command[]> {
  const { artifacts: all = [] } = await khala.board.artifacts({ limit: 500 });
  return all
    .filter(({ id, type, correlation_id }) =>
      [id, type, correlation_id].some((text) => includes(text, query)),
    )
    .slice(0, EACH)
    .map(({ id = "", type = "" }) => ({
      id: `artifact-${id}`,
      label: type,
      hint: shortenMiddle(id, 18),
      icon: "blackboard",
      href: links.artifact(id),
    }));
}
