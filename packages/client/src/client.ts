import type { ArtifactDraftJson } from "@khala/contracts/blackboard/v1";
import type {
  AnyParams,
  AppendsOf,
  AppTypes,
  BoardTopics,
  DraftsOf,
  ParamsOf,
  TopicsOf,
} from "./app_types.ts";
import { type Approvals, openApprovals } from "./board/approvals.ts";
import { type Board, openBoard } from "./board/board.ts";
import type { Connection } from "./connection/port.ts";
import { type Conversation, type Conversations, openConversations } from "./conversation/conversations.ts";
import { socketConversationSource } from "./conversation/socket_source.ts";
import { type CoreOptions, openCore } from "./core.ts";
import { type Ops, openOps } from "./ops/ops.ts";
import type { AnyAppends, Appends } from "./sync/appends/appends_port.ts";
import type { Sync, Topics } from "./sync/plane_port.ts";
import { canShareTabs, openTabs, type Tabs } from "./tabs/tabs.ts";

export interface ClientOptions extends CoreOptions {
  /** Whether the tabs of this origin share one socket. Where they can, and the storage is shared, they do. */
  readonly shareTabs?: boolean;
  /** The name of this device in conversations, 1 to 64 characters: others see it as connected, and it sees them. */
  readonly device?: string;
}

/** The connection as an app reads and controls it. */
export type ConnectionView = Pick<Connection, "status" | "subscribe" | "connect" | "pause">;

/** A connected client: sync, conversations, board and operations. */
export interface KhalaClient<
  T extends Topics = BoardTopics,
  Draft extends object = ArtifactDraftJson,
  A extends object = AnyAppends,
  Params extends object = AnyParams,
> {
  readonly connection: ConnectionView;
  /** Documents that stay up to date, and the events that change them. */
  readonly sync: Sync<T> & Appends<A>;
  /** One conversation; the same object while it is in use. */
  conversation(convId: string): Conversation<Params>;
  readonly conversations: Pick<Conversations, "list" | "log" | "read">;
  readonly board: Board<Draft>;
  /** Pending approvals, of conversations and of the board. */
  readonly approvals: Approvals;
  readonly ops: Ops;
  /** Disconnects, and closes the storage. */
  close(): Promise<void>;
}

/** Creates a client. It sends no request until something is used. */
export function createClient<App extends AppTypes = AppTypes>(
  options: ClientOptions,
): KhalaClient<TopicsOf<App>, DraftsOf<App>, AppendsOf<App>, ParamsOf<App>> {
  let identified = false;
  const core = openCore<TopicsOf<App>, AppendsOf<App>>(options, (scope) => {
    identified = true;
    conversations.setScope(scope);
    tabs?.setScope(scope);
  });
  const { environment, http, connection, sync, log } = core;
  const { shareTabs = options.storage !== undefined && canShareTabs(environment) } = options;
  const tabs: Tabs | undefined = shareTabs ? openTabs({ environment, connection, log }) : undefined;
  const view: ConnectionView = tabs ?? connection;
  const conversations = openConversations(view, http, environment, {
    log,
    ...(options.storage && { storage: options.storage }),
  });
  const topics = { plane: sync, source: core.socketSource };
  const talks = { plane: conversations, source: socketConversationSource(connection, options.device) };
  if (tabs) tabs.share({ topics, conversations: talks });
  else {
    sync.setSource(topics.source);
    conversations.setSource(talks.source);
  }
  return {
    connection: {
      status: () => view.status(),
      subscribe: (listener) => view.subscribe(listener),
      connect() {
        // Tabs are grouped by the token's subject. Until there is a token, this tab connects alone.
        core.identify();
        if (!identified) connection.connect();
        view.connect();
      },
      pause: () => view.pause(),
    },
    sync,
    conversation(convId) {
      // Only tabs of the same person share a connection.
      core.identify();
      return conversations.get(convId);
    },
    conversations,
    board: openBoard(http, sync),
    approvals: openApprovals(http, sync),
    ops: openOps(connection, http, { shared: view, environment }),
    async close() {
      tabs?.close();
      await core.close(conversations.close());
    },
  };
}
