import type { ConversationListJson, LogPageJson, StopResponseJson } from "@khala/contracts/conversation/v1";
import type { Connection } from "../connection/port.ts";
import type { Environment } from "../environment.ts";
import type { Http } from "../http.ts";
import type { Log } from "../log.ts";
import { oneAtATime } from "../storage/driver_support.ts";
import type { Storage } from "../storage/storage.ts";
import { Notifier } from "../sync/notifier.ts";
import { ConversationStore, StoredConversation } from "./conversation_store.ts";
import { type ConversationView, LiveConversation, UNOPENED } from "./live_conversation.ts";
import type { SendOptions } from "./outbox.ts";
import type { ConversationSource } from "./source.ts";

/** One conversation. */
export interface Conversation {
  readonly id: string;
  /** What there is to show; kept up to date while somebody subscribes. */
  state(): ConversationView;
  /** Follows the conversation until the returned function is called, and calls back after changes. */
  subscribe(listener: () => void): () => void;
  /** Says something. Shown at once; resolves when the server has it, and rejects when it is refused or cannot be delivered. */
  send(text: string, options?: SendOptions): Promise<{ run_id: string }>;
  /** Stops the run under way, whichever device started it; false when nothing ran. */
  stop(): Promise<boolean>;
  /** Removes it, for all devices. */
  delete(): Promise<void>;
}

export interface PageOptions {
  readonly limit?: number;
  /** `next` of the page before. */
  readonly after?: string;
  readonly signal?: AbortSignal;
}

/** The conversations of a client. It is a source itself: whoever follows it (another tab) gets what this one has. */
export interface Conversations extends ConversationSource {
  /** The same object for an id while somebody uses it. */
  get(convId: string): Conversation;
  /** The person's own, newest first. */
  list(options?: PageOptions): Promise<ConversationListJson>;
  /** What was said, event by event, oldest first: to show how a conversation came about. */
  log(convId: string, options?: PageOptions): Promise<LogPageJson>;
  /** Takes frames from this source from now on; conversations go on from where they are. Undefined: from nowhere. */
  setSource(source: ConversationSource | undefined): void;
  /** Whether this tab writes down what is kept on the device. */
  setStoring(storing: boolean): void;
  /** Whose conversations these are. Another scope than before empties them all. */
  setScope(scope: string): void;
  /** Resolves when what is to be kept is written. */
  close(): Promise<void>;
}

export interface ConversationsOptions {
  readonly log?: Log;
  /** Where the last conversations are kept for an offline start; nowhere unless set. */
  readonly storage?: Storage;
}

/** Opens conversations. They follow nothing until there is a source. */
export function openConversations(
  connection: Pick<Connection, "status" | "subscribe">,
  http: Http,
  environment: Environment,
  { log = () => {}, storage }: ConversationsOptions = {},
): Conversations {
  const serialize = oneAtATime("The storage");
  const notifier = new Notifier(environment, log);
  const rooms = new Map<string, { readonly room: LiveConversation; readonly conversation: Conversation }>();
  let source: ConversationSource | undefined;
  let whose: string | undefined;
  let store: ConversationStore | undefined;
  let storing = true;

  function keep(room: LiveConversation): void {
    if (store) room.keep(new StoredConversation(store, room.convId, environment, () => storing));
  }

  function open(convId: string, conversation: Conversation): LiveConversation {
    const there = rooms.get(convId);
    if (there) return there.room;
    const room = new LiveConversation(convId, {
      http,
      environment,
      connection,
      notifier,
      source: () => source,
      keeps: storage !== undefined,
      onIdle(idle) {
        idle.close();
        if (rooms.get(convId)?.room === idle) rooms.delete(convId);
      },
    });
    rooms.set(convId, { room, conversation });
    keep(room);
    return room;
  }

  function handle(convId: string): Conversation {
    const path = `/chat/${encodeURIComponent(convId)}`;
    const known = () => rooms.get(convId)?.room;
    const conversation: Conversation = {
      id: convId,
      state: () => known()?.view ?? UNOPENED,
      subscribe: (listener) => open(convId, conversation).subscribe(listener),
      send: (text, options = {}) => open(convId, conversation).send(text, options),
      async stop() {
        const { stopped = false } = (await http.request("POST", `${path}/stop`)).body as StopResponseJson;
        if (!stopped) known()?.nothingRuns();
        return stopped;
      },
      async delete() {
        const cursor = known()?.position();
        await http.request("DELETE", path);
        if (cursor !== undefined) known()?.forget(cursor);
        await store?.remove(convId);
      },
    };
    return conversation;
  }

  const get = (convId: string) => rooms.get(convId)?.conversation ?? handle(convId);

  return {
    get,
    follow: (convId, sink, signal) => open(convId, get(convId)).relay(sink, signal),
    async list({ limit, after, signal } = {}) {
      const answer = await http.request("GET", "/chat", {
        query: { limit, after },
        ...(signal && { signal }),
      });
      return answer.body as ConversationListJson;
    },
    async log(convId, { limit, after, signal } = {}) {
      const path = `/chat/${encodeURIComponent(convId)}/log`;
      const answer = await http.request("GET", path, { query: { limit, after }, ...(signal && { signal }) });
      return answer.body as LogPageJson;
    },
    setSource(next) {
      source = next;
      for (const { room } of rooms.values()) room.follow();
    },
    setStoring(next) {
      storing = next;
      for (const { room } of rooms.values()) room.setStoring(next);
    },
    setScope(scope) {
      if (whose === scope) return;
      const changed = whose !== undefined;
      whose = scope;
      store = storage && new ConversationStore({ storage, scope, environment, log, serialize });
      for (const { room } of rooms.values()) {
        if (changed) room.reset();
        keep(room);
      }
    },
    async close() {
      source = undefined;
      for (const { room } of rooms.values()) room.close();
      rooms.clear();
      await serialize(async () => {});
    },
  };
}
