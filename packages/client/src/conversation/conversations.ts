import { KhalaError } from "@khala/contracts";
import type {
  ConversationListJson,
  ConversationStateJson,
  DecideToolRequestJson,
  DecideToolResponseJson,
  LogPageJson,
  StopResponseJson,
  StoredFileJson,
} from "@khala/contracts/conversation/v1";
import type { AnyParams } from "../app_types.ts";
import type { Connection } from "../connection/port.ts";
import type { Environment } from "../environment.ts";
import type { Http } from "../http.ts";
import type { Log } from "../log.ts";
import { oneAtATime } from "../storage/driver_support.ts";
import type { Storage } from "../storage/storage.ts";
import { Notifier } from "../sync/notifier.ts";
import { ConversationStore, StoredConversation } from "./conversation_store.ts";
import { type ConversationView, LiveConversation, UNOPENED } from "./live_conversation.ts";
import { type OutgoingMessage, type RegenerateOptions, type SendOptions, upload } from "./outbox.ts";
import type { ConversationSource } from "./source.ts";

/** One conversation. */
export interface Conversation<Params extends object = AnyParams> {
  readonly id: string;
  /** The state for rendering; up to date while there is a subscriber. */
  state(): ConversationView;
  /** Follows the conversation until the returned function is called, and calls the listener after changes. */
  subscribe(listener: () => void): () => void;
  /** Sends a message. It is shown at once; resolves when the server has it, rejects when it is refused or cannot be delivered. */
  send(message: string | OutgoingMessage<Params>, options?: SendOptions): Promise<{ run_id: string }>;
  /** Asks for another answer: to this question, or instead of this answer. The one before stays as a branch. */
  regenerate(messageId: string, options?: RegenerateOptions): Promise<{ run_id: string }>;
  /** Sends another version of a user's message. The one before stays as a branch. */
  edit(
    messageId: string,
    message: string | OutgoingMessage<Params>,
    options?: SendOptions,
  ): Promise<{ run_id: string }>;
  /** Shows the branch through this message, on all devices. See `branchesOf`. */
  chooseBranch(messageId: string): Promise<void>;
  /** Uploads a file of the conversation, to be named in a message. `send` does it for the files that it gets. */
  upload(file: File, options?: { readonly signal?: AbortSignal }): Promise<StoredFileJson>;
  /** Reads a file of a message by its address. Show it with `URL.createObjectURL`. */
  file(url: string, options?: { readonly signal?: AbortSignal }): Promise<Blob>;
  /** Stops the current run, whichever device started it; false when nothing ran. */
  stop(): Promise<boolean>;
  /** Decides a tool call that the run waits for: approves or denies it, or gives what this client's execution of it gave. */
  decide(callId: string, decision: DecideToolRequestJson): Promise<DecideToolResponseJson>;
  /** Deletes the conversation on the server. */
  delete(): Promise<void>;
}

export interface PageOptions {
  readonly limit?: number;
  /** `next` of the page before. */
  readonly after?: string;
  readonly signal?: AbortSignal;
}

export interface ConversationFilter extends PageOptions {
  /** Words that one message has. */
  readonly q?: string;
  /** Statuses of the newest run, separated by commas. */
  readonly status?: string;
}

/** The conversations of a client. It is a source itself, for other tabs. */
export interface Conversations extends ConversationSource {
  /** The same object for an id while it is in use. */
  get(convId: string): Conversation;
  /** The user's conversations, newest first. */
  list(options?: ConversationFilter): Promise<ConversationListJson>;
  /** One conversation as it is now, without following it: unlike an open one, it is not created by being looked at. */
  read(convId: string, options?: { readonly signal?: AbortSignal }): Promise<ConversationStateJson>;
  /** The conversation's events, oldest first. */
  log(convId: string, options?: PageOptions): Promise<LogPageJson>;
  /** Sets the source of frames; conversations resume from their position. Undefined: no source for now. */
  setSource(source: ConversationSource | undefined): void;
  /** Whether this tab writes to the storage. */
  setStoring(storing: boolean): void;
  /** Sets whose conversations these are. A changed scope empties them all. */
  setScope(scope: string): void;
  /** Resolves when everything is stored. */
  close(): Promise<void>;
}

export interface ConversationsOptions {
  readonly log?: Log;
  /** Where recent conversations are stored for an offline start. Default: nowhere. */
  readonly storage?: Storage;
}

const FILE_TIMEOUT_MS = 300_000;

/** Opens conversations. They follow nothing until there is a source. */
export function openConversations(
  connection: Pick<Connection, "status" | "subscribe">,
  http: Http,
  environment: Environment,
  { log = () => {}, storage }: ConversationsOptions = {},
): Conversations {
  const serialize = oneAtATime("The storage");
  const notifier = new Notifier(environment, log);
  const opened = new Map<string, { readonly live: LiveConversation; readonly conversation: Conversation }>();
  let source: ConversationSource | undefined;
  let scopeNow: string | undefined;
  let store: ConversationStore | undefined;
  let storing = true;

  function attachStore(live: LiveConversation): void {
    if (store) live.attachStore(new StoredConversation(store, live.convId, environment, () => storing));
  }

  function open(convId: string, conversation: Conversation): LiveConversation {
    const there = opened.get(convId);
    if (there) return there.live;
    const live = new LiveConversation(convId, {
      http,
      environment,
      connection,
      notifier,
      source: () => source,
      stores: storage !== undefined,
      onIdle(idle) {
        idle.close();
        if (opened.get(convId)?.live === idle) opened.delete(convId);
      },
    });
    opened.set(convId, { live, conversation });
    attachStore(live);
    return live;
  }

  function handle(convId: string): Conversation {
    const path = `/chat/${encodeURIComponent(convId)}`;
    const current = () => opened.get(convId)?.live;
    const conversation: Conversation = {
      id: convId,
      state: () => current()?.view ?? UNOPENED,
      subscribe: (listener) => open(convId, conversation).subscribe(listener),
      send: (message, options = {}) => open(convId, conversation).send(message, options),
      regenerate: (messageId, options = {}) => open(convId, conversation).regenerate(messageId, options),
      edit: (messageId, message, options = {}) =>
        open(convId, conversation).send(message, options, messageId),
      async chooseBranch(messageId) {
        await http.request("POST", `${path}/branch`, { body: { message_id: messageId } });
      },
      upload: (file, { signal } = {}) => upload(http, convId, file, signal),
      async file(url, { signal } = {}) {
        // The token is for the own server alone.
        if (!/^\/files\/[A-Za-z0-9-]+$/.test(url))
          throw new KhalaError(
            "invalid_request",
            "Only files at /files/<file_id> can be read. Fetch other URLs yourself.",
          );
        return (
          await http.request("GET", url, {
            binary: true,
            timeoutMs: FILE_TIMEOUT_MS,
            ...(signal && { signal }),
          })
        ).body as Blob;
      },
      async stop() {
        const { stopped = false } = (await http.request("POST", `${path}/stop`)).body as StopResponseJson;
        if (!stopped) current()?.nothingRuns();
        return stopped;
      },
      async decide(callId, decision) {
        const answer = await http.request("POST", `${path}/tools/${encodeURIComponent(callId)}`, {
          body: decision,
        });
        return answer.body as DecideToolResponseJson;
      },
      async delete() {
        const cursor = current()?.position();
        await http.request("DELETE", path);
        if (cursor !== undefined) current()?.forget(cursor);
        await store?.remove(convId);
      },
    };
    return conversation;
  }

  const get = (convId: string) => opened.get(convId)?.conversation ?? handle(convId);

  return {
    get,
    follow: (convId, sink, signal) => open(convId, get(convId)).relay(sink, signal),
    async list({ limit, after, q, status, signal } = {}) {
      const answer = await http.request("GET", "/chat", {
        query: { limit, after, q, status },
        ...(signal && { signal }),
      });
      return answer.body as ConversationListJson;
    },
    async read(convId, { signal } = {}) {
      const path = `/chat/${encodeURIComponent(convId)}`;
      return (await http.request("GET", path, { ...(signal && { signal }) })).body as ConversationStateJson;
    },
    async log(convId, { limit, after, signal } = {}) {
      const path = `/chat/${encodeURIComponent(convId)}/log`;
      const answer = await http.request("GET", path, { query: { limit, after }, ...(signal && { signal }) });
      return answer.body as LogPageJson;
    },
    setSource(next) {
      source = next;
      for (const { live } of opened.values()) live.follow();
    },
    setStoring(next) {
      storing = next;
      if (next) store?.startOver();
      for (const { live } of opened.values()) live.setStoring(next);
    },
    setScope(scope) {
      if (scopeNow === scope) return;
      const changed = scopeNow !== undefined;
      scopeNow = scope;
      store = storage && new ConversationStore({ storage, scope, environment, log, serialize });
      for (const { live } of opened.values()) {
        if (changed) live.reset();
        attachStore(live);
      }
    },
    async close() {
      source = undefined;
      for (const { live } of opened.values()) live.close();
      opened.clear();
      await serialize(async () => {});
    },
  };
}
