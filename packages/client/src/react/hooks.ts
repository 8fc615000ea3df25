import type { ArtifactDraftJson, CorrelationStateJson } from "@khala/contracts/blackboard/v1";
import type { PendingApprovalJson } from "@khala/contracts/conversation/v1";
import {
  createContext,
  createElement,
  type ReactNode,
  useCallback,
  useContext,
  useEffect,
  useMemo,
  useRef,
  useSyncExternalStore,
} from "react";
import type {
  AnyParams,
  AppendsOf,
  AppTypes,
  BoardTopics,
  DraftsOf,
  ParamsOf,
  TopicsOf,
} from "../app_types.ts";
import { type ApprovalDecision, type ApprovalsState, NOTHING_READ } from "../board/approvals.ts";
import type { Board } from "../board/board.ts";
import type { CorrelationWatch } from "../board/correlation_watch.ts";
import type { KhalaClient } from "../client.ts";
import type { ConnectionStatus } from "../connection/port.ts";
import type { Conversation } from "../conversation/conversations.ts";
import { type ConversationView, UNOPENED } from "../conversation/live_conversation.ts";
import type { AnyAppends, AppendOptions, PendingAppend } from "../sync/appends/appends_port.ts";
import { arrangementOf, partOf } from "../sync/lists.ts";
import type {
  ListOptions as Arrangement,
  DocumentOf,
  Item,
  ListSnapshot,
  Snapshot,
  TopicName,
  Topics,
} from "../sync/plane_port.ts";

/** A client of any app. */
export type AnyClient = Omit<KhalaClient, "sync"> & { readonly sync: object };

const KhalaContext = createContext<AnyClient | undefined>(undefined);

/** Provides the client to hooks. The owner of the client closes it. */
export function KhalaProvider({
  client,
  children,
}: {
  readonly client: AnyClient;
  readonly children?: ReactNode;
}) {
  return createElement(KhalaContext.Provider, { value: client }, children);
}

/** The client. */
export function useKhala<T extends Topics = BoardTopics, A extends object = AnyAppends>(): KhalaClient<
  T,
  ArtifactDraftJson,
  A
> {
  const client = useContext(KhalaContext);
  if (!client)
    throw new Error("This component has no Khala client. Put <KhalaProvider client={…}> around it.");
  // Only the app knows its topics.
  return client as KhalaClient<T, ArtifactDraftJson, A>;
}

const ON_A_SERVER: ConnectionStatus = { state: "idle", since: 0, attempt: 0, role: "own" };

/** The connection's status. */
export function useConnection(): ConnectionStatus {
  const { connection } = useKhala();
  const subscribe = useCallback((listener: () => void) => connection.subscribe(listener), [connection]);
  return useSyncExternalStore(
    subscribe,
    () => connection.status(),
    () => ON_A_SERVER,
  );
}

/** A conversation with its actions. */
export interface ConversationHook<Params extends object = AnyParams>
  extends ConversationView,
    Pick<
      Conversation<Params>,
      "send" | "regenerate" | "edit" | "chooseBranch" | "stop" | "decide" | "delete"
    > {}

/** A live conversation: messages, run and actions. */
export function useConversation(convId: string): ConversationHook {
  const client = useKhala();
  const conversation = useMemo(() => client.conversation(convId), [client, convId]);
  const state = useSyncExternalStore(conversation.subscribe, conversation.state, () => UNOPENED);
  return useMemo(() => {
    const { send, regenerate, edit, chooseBranch, stop, decide, delete: remove } = conversation;
    return { ...state, send, regenerate, edit, chooseBranch, stop, decide, delete: remove };
  }, [state, conversation]);
}

/** The board, and one correlation. */
export interface BoardHook {
  readonly board: Board;
  /** The state of the correlation; without `data` until it is known. */
  readonly correlation: Snapshot<CorrelationStateJson>;
}

const NOT_HEARD: Snapshot<CorrelationStateJson> = { phase: "loading", stale: false };
const NOTHING: Pick<CorrelationWatch, "state" | "subscribe"> = {
  state: () => NOT_HEARD,
  subscribe: () => () => {},
};

/** The blackboard, and one live correlation. */
export function useBoard(correlationId?: string): BoardHook {
  const { board } = useKhala();
  const watch = useMemo(
    () => (correlationId === undefined ? NOTHING : board.watch(correlationId)),
    [board, correlationId],
  );
  const correlation = useSyncExternalStore(watch.subscribe, watch.state, NOTHING.state);
  return useMemo(() => ({ board, correlation }), [board, correlation]);
}

/** Pending approvals, and how to decide them. */
export interface ApprovalsHook extends ApprovalsState {
  /** Decides one, of a conversation or of the board. Rejects when it was decided differently. */
  decide(approval: PendingApprovalJson, decision: ApprovalDecision): Promise<void>;
  /** Asks the server now. */
  refresh(): Promise<void>;
}

/** Pending approvals, in conversations and on the board: live, for a token with the topic `approvals`. */
export function useApprovals(): ApprovalsHook {
  const { approvals: inbox } = useKhala();
  const read = useSyncExternalStore(inbox.subscribe, inbox.state, () => NOTHING_READ);
  return useMemo(() => {
    const { refresh } = inbox;
    return {
      ...read,
      refresh,
      decide: (approval, decision) => inbox.decide(approval, decision).finally(refresh),
    };
  }, [read, inbox]);
}

const NO_DOCUMENT: Snapshot<never> = { phase: "loading", stale: false };
const NO_LIST: ListSnapshot<never> = { items: [], phase: "loading" };

export interface DocOptions {
  /** Follows only this document, and not its whole topic. */
  readonly alone?: boolean;
}

/** One document, live. */
export function useDoc<Doc = unknown>(
  topic: string,
  key: string,
  { alone = false }: DocOptions = {},
): Snapshot<Doc> {
  const { sync } = useKhala();
  const name = alone ? partOf(topic, { doc_key: key }) : topic;
  const subscribe = useCallback(
    (listener: () => void) => sync.subscribe(name, key, listener),
    [sync, name, key],
  );
  // Only the app knows the document's type.
  const read = () => sync.get(name, key) as Snapshot<Doc>;
  return useSyncExternalStore(subscribe, read, () => NO_DOCUMENT);
}

export interface ListOptions<Doc, Result> extends Omit<Arrangement<Doc>, "filter"> {
  /** Selects documents: by the values of fields, or by a function. */
  readonly filter?: Arrangement<Doc>["filter"] | ((item: Item<Doc>) => boolean);
  /** Maps each document. */
  readonly select?: (item: Item<Doc>) => Result;
}

/** The selected documents of a topic. */
export interface SelectedList<Result> extends Omit<ListSnapshot, "items"> {
  readonly items: readonly Result[];
}

/** The live documents of a topic or a part of it, sorted by key or by `order`. Changes outside of `filter` and `select` do not render. */
export function useList<Doc = unknown, Result = Item<Doc>>(
  topic: string,
  options: ListOptions<Doc, Result> = {},
): SelectedList<Result> {
  const { sync } = useKhala();
  const { where, order, limit, select } = options;
  const chosen = typeof options.filter === "function" ? options.filter : undefined;
  const fields = typeof options.filter === "function" ? undefined : options.filter;
  const name = partOf<Doc>(topic, where);
  // A function chooses before the limit counts.
  const asked: Arrangement<Doc> = { order, filter: fields, limit: chosen ? undefined : limit };
  // The options are often new objects with the same content.
  // biome-ignore lint/correctness/useExhaustiveDependencies: the id stands for all of them.
  const arranged = useMemo(() => asked, [arrangementOf(asked)]);
  const most = chosen ? limit : undefined;
  const subscribe = useCallback((listener: () => void) => sync.subscribe(name, listener), [sync, name]);
  const shown = useRef<SelectedList<Result> | undefined>(undefined);
  const read = useMemo(() => {
    let lastList: ListSnapshot<Doc> | undefined;
    let selected: SelectedList<Result> | undefined;
    return () => {
      const list = sync.list(name, arranged as Arrangement) as ListSnapshot<Doc>;
      if (selected && list === lastList) return selected;
      lastList = list;
      selected = reuseItems(
        selected ?? shown.current,
        selectItems(list, chosen, select, most),
        select ? shallowEqual : Object.is,
      );
      return selected;
    };
  }, [sync, name, arranged, chosen, select, most]);
  const result = useSyncExternalStore(subscribe, read, () => NO_LIST as SelectedList<Result>);
  // Inline functions are new in every render; their results should not be.
  useEffect(() => {
    shown.current = result;
  }, [result]);
  return result;
}

function selectItems<Doc, Result>(
  { items, ...rest }: ListSnapshot<Doc>,
  filter: ((item: Item<Doc>) => boolean) | undefined,
  select: ListOptions<Doc, Result>["select"],
  limit: number | undefined,
): SelectedList<Result> {
  const chosen = filter ? items.filter(filter).slice(0, limit) : items;
  // Without `select` the result is the item itself.
  return { ...rest, items: select ? chosen.map(select) : (chosen as readonly Result[]) };
}

/** The newer list, reusing equal items of the older one. */
function reuseItems<Result>(
  before: SelectedList<Result> | undefined,
  after: SelectedList<Result>,
  isEqual: (a: unknown, b: unknown) => boolean,
): SelectedList<Result> {
  if (!before) return after;
  const asBefore = after.items.length === before.items.length;
  const same = asBefore && after.items.every((item, i) => isEqual(before.items[i], item));
  if (same && before.phase === after.phase && before.error === after.error) return before;
  if (same) return { ...after, items: before.items };
  if (isEqual === Object.is) return after;
  const items = after.items.map((item, i) =>
    isEqual(before.items[i], item) ? (before.items[i] as Result) : item,
  );
  return { ...after, items };
}

/** Shallow equality. */
function shallowEqual(a: unknown, b: unknown): boolean {
  if (Object.is(a, b)) return true;
  if (typeof a !== "object" || typeof b !== "object" || a === null || b === null) return false;
  const [left, right] = [Object.entries(a), Object.entries(b)];
  return (
    left.length === right.length && right.every(([name, value]) => Object.is(value, Reflect.get(a, name)))
  );
}

/** The functions and state for writing to one stream. */
export interface AppendHook<Event> {
  /** Appends events to a stream, all or none. Waits for the network; rejects when the server refuses. */
  readonly append: (
    id: string,
    events: Event | readonly Event[],
    options?: AppendOptions,
  ) => Promise<{ readonly seq: string }>;
  /** The appends to streams of this path that are not visible yet. */
  readonly pending: readonly PendingAppend[];
}

const NOTHING_PENDING: readonly PendingAppend[] = [];

/** Appends to the streams of a path, such as `/runtime/v1/runs`, and shows pending appends. */
export function useAppend<Event extends object = AnyAppends[string]>(path: string): AppendHook<Event> {
  const { sync } = useKhala<BoardTopics, Record<string, Event>>();
  const subscribe = useCallback((listener: () => void) => sync.onPending(listener), [sync]);
  const all = useSyncExternalStore(
    subscribe,
    () => sync.pending(),
    () => NOTHING_PENDING,
  );
  const append: AppendHook<Event>["append"] = useCallback(
    (id, events, options) => sync.append(path, id, events, options),
    [sync, path],
  );
  const pending = useMemo(() => all.filter((one) => one.path === path), [all, path]);
  return useMemo(() => ({ append, pending }), [append, pending]);
}

/** The document hooks with the types of an app. */
export interface Hooks<
  T extends Topics,
  Draft extends object = ArtifactDraftJson,
  A extends object = AnyAppends,
  Params extends object = AnyParams,
> {
  useKhala(): KhalaClient<T, Draft, A, Params>;
  useConversation(convId: string): ConversationHook<Params>;
  useAppend<Path extends keyof A & string>(path: Path): AppendHook<A[Path]>;
  useDoc<Topic extends TopicName<T>>(
    topic: Topic,
    key: string,
    options?: DocOptions,
  ): Snapshot<DocumentOf<T, Topic>>;
  useList<Topic extends TopicName<T>, Result = Item<DocumentOf<T, Topic>>>(
    topic: Topic,
    options?: ListOptions<DocumentOf<T, Topic>, Result>,
  ): SelectedList<Result>;
}

/** The hooks with the types of an app. */
type HooksOf<App extends AppTypes> = Hooks<TopicsOf<App>, DraftsOf<App>, AppendsOf<App>, ParamsOf<App>>;

/** The hooks for an app: `export const { useDoc, useList, useAppend } = hooksOf<typeof app>()`. */
export function hooksOf<App extends AppTypes>(): HooksOf<App> {
  // Only the app knows what its streams accept.
  return { useKhala, useConversation, useDoc, useList, useAppend } as HooksOf<App>;
}
