import type { ApprovalInboxJson, PendingApprovalJson } from "@khala/contracts/conversation/v1";
import type { Http } from "../http.ts";
import type { Sync } from "../sync/plane_port.ts";

/** The decision of a person. */
export interface ApprovalDecision {
  readonly approved: boolean;
  readonly reason?: string;
}

/** The inbox as it was last read. */
export interface ApprovalsState {
  /** Oldest first; undefined until it is known. */
  readonly approvals: readonly PendingApprovalJson[] | undefined;
  /** Why the last request failed. */
  readonly error: Error | undefined;
}

/** Pending approvals: tool calls of conversations, and tasks of the board. */
export interface Approvals {
  /** Oldest first. */
  list(): Promise<readonly PendingApprovalJson[]>;
  /** Decides one. The first decision counts. */
  decide(
    approval: Pick<PendingApprovalJson, "kind" | "id" | "conv_id" | "tool_call_id">,
    decision: ApprovalDecision,
  ): Promise<void>;
  /** What was read last for subscribers. The same object until it is read again. */
  state(): ApprovalsState;
  /**
   * Reads the inbox, and again whenever the topic `approvals` changes. A token without this topic reads it once, and with
   * `refresh`.
   */
  subscribe(listener: () => void): () => void;
  /** Reads the inbox now. */
  refresh(): Promise<void>;
}

const TOPIC = "approvals";
/** The state before the first answer. */
export const NOTHING_READ: ApprovalsState = { approvals: undefined, error: undefined };

/** The inbox over HTTP, read when its topic changes. */
export function openApprovals(http: Http, sync: Pick<Sync, "list" | "subscribe">): Approvals {
  const listeners = new Set<() => void>();
  let state = NOTHING_READ;
  let reading: Promise<void> | undefined;
  let next: Promise<void> | undefined;
  let unfollow: (() => void) | undefined;

  async function list(): Promise<readonly PendingApprovalJson[]> {
    const { approvals = [] } = (await http.request("GET", "/approvals")).body as ApprovalInboxJson;
    return approvals;
  }

  async function read(): Promise<void> {
    try {
      state = { approvals: await list(), error: undefined };
    } catch (error) {
      state = { approvals: state.approvals, error: error as Error };
    }
    reading = undefined;
    for (const listener of listeners) listener();
  }

  /** One request at a time: changes during it are in the next one. */
  function refresh(): Promise<void> {
    if (!reading) {
      reading = read();
      return reading;
    }
    next ??= reading.then(() => {
      next = undefined;
      return refresh();
    });
    return next;
  }

  function follow(): () => void {
    let seen: string | undefined;
    void refresh();
    return sync.subscribe(TOPIC, () => {
      const { phase, items } = sync.list(TOPIC);
      const last = seen;
      // Each time it becomes live, too: something may have been decided in between.
      seen = phase === "live" ? items.map(({ key, version }) => `${key} ${version}`).join("\n") : undefined;
      if (seen !== undefined && seen !== last) void refresh();
    });
  }

  return {
    list,
    async decide({ kind, id = "", conv_id = "", tool_call_id = "" }, { approved, reason }) {
      const why = reason && { reason };
      if (kind === "chat") {
        const path = `/chat/${encodeURIComponent(conv_id)}/tools/${encodeURIComponent(tool_call_id)}`;
        await http.request("POST", path, { body: { approve: approved, ...why } });
      } else {
        const path = `/blackboard/v1/approvals/${encodeURIComponent(id)}`;
        await http.request("POST", path, { body: { approved, ...why } });
      }
    },
    state: () => state,
    subscribe(listener) {
      // A listener may be given twice.
      const own = () => listener();
      listeners.add(own);
      unfollow ??= follow();
      return () => {
        listeners.delete(own);
        if (listeners.size > 0) return;
        unfollow?.();
        unfollow = undefined;
      };
    },
    refresh,
  };
}
