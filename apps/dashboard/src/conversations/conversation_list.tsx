import { useKhala } from "@khala/client/react";
import { type ReactNode, useState } from "react";
import { useFetch } from "../data/fetch.ts";
import { completeAll } from "../data/wire.ts";
import { hrefTo, useParam } from "../router.ts";
import { Button } from "../ui/controls/button.tsx";
import { Select } from "../ui/controls/select.tsx";
import { SearchInput } from "../ui/controls/toolbar.tsx";
import { Fetched } from "../ui/feedback/fetched.tsx";
import { Empty } from "../ui/feedback/notices.tsx";
import { StateBadge, stateOf } from "../ui/feedback/state_badge.tsx";
import { Ago } from "../ui/format/ago.tsx";
import { classNames } from "../ui/format/class_names.ts";
import { shortenMiddle } from "../ui/format/id.tsx";
import { useDebounced } from "../ui/hooks.ts";
import { RUN_STATUS } from "./types.ts";

const EVERY_MS = 3_000;
const PAGE = 50;
const MAX_LISTED = 1_000;
const FAILED = 200;
const DEBOUNCE_MS = 200;
const MAX_SEARCH = 200;
const STATUSES = ["any", "running", "waiting", "failed", "stopped", "finished"].map((value) => ({
  value,
  label: value === "any" ? "Any status" : (RUN_STATUS[value] ?? value),
}));
const OWN = {
  conv_id: "",
  title: "",
  updated_at: "",
  run: { status: "", error: { code: "", message: "" } },
};
const OF_ORG = { conv_id: "", updated_at: "", run_status: "", subject: "", sockets: 0 };
const OWNERS = [
  { value: "own", label: "Mine" },
  { value: "org", label: "Whole org" },
] as const;

/** Whose conversations are listed. */
export type Owner = "own" | "org";

interface ListedConversation {
  readonly conv_id: string;
  /** Empty in the list of the org. */
  readonly title: string;
  readonly updated_at: string;
  /** The status of the current run, or else of the last one; empty when there was none. */
  readonly run: string;
  /** Why that run failed, as its user sees it. */
  readonly error?: { readonly code: string; readonly message: string };
  readonly subject?: string;
  readonly sockets?: number;
}

/** Polls the conversations, newest first: the user's own, or those of the org without their content. */
export function useConversationList(owner: Owner) {
  const khala = useKhala();
  const [limit, setLimit] = useState(PAGE);
  const [text = ""] = useParam("q");
  const [status] = useParam("status");
  const q = useDebounced(text.trim().slice(0, MAX_SEARCH), DEBOUNCE_MS);
  const state = useFetch(
    ["conversations", owner, limit, q, status],
    async (): Promise<{ rows: readonly ListedConversation[]; hasMore: boolean }> => {
      if (owner === "org") {
        const [{ conversations, next }, { runs = [] }] = await Promise.all([
          khala.ops.conversations({ limit }),
          khala.ops.failedRuns({ limit: FAILED }),
        ]);
        // Newest first: the last one that is set is kept.
        const failures = new Map(runs.toReversed().map((run) => [run.conv_id, run]));
        const rows = completeAll(OF_ORG, conversations).map((row) => {
          const { code = "", message = "" } = failures.get(row.conv_id) ?? {};
          const failed = row.run_status === "failed" && message !== "" && { error: { code, message } };
          return { ...row, title: "", run: row.run_status, ...failed };
        });
        return { rows, hasMore: next !== undefined };
      }
      const { conversations, next } = await khala.conversations.list({
        limit,
        ...(q !== "" && { q }),
        ...(status !== undefined && { status }),
      });
      const rows = completeAll(OWN, conversations).map(({ run, ...row }) => ({
        ...row,
        run: run.status,
        ...(run.status === "failed" && { error: run.error }),
      }));
      return { rows, hasMore: next !== undefined };
    },
    EVERY_MS,
  );
  return {
    ...state,
    data: state.data?.rows,
    isFiltered: q !== "" || status !== undefined,
    hasMore: state.data?.hasMore === true && limit < MAX_LISTED,
    loadMore: () => setLimit((now) => Math.min(MAX_LISTED, now + 4 * PAGE)),
  };
}

export interface ConversationListProps {
  readonly list: ReturnType<typeof useConversationList>;
  readonly owner: Owner;
  readonly onOwner: (owner: Owner) => void;
  readonly selected: string | undefined;
  readonly onNew: () => void;
}

/** The conversations at the left, newest first. */
export function ConversationList({ list, owner, onOwner, selected, onNew }: ConversationListProps) {
  const [text = "", setText] = useParam("q");
  const [status = "any", setStatus] = useParam("status");
  return (
    <nav className="conversation-list" aria-label="Conversations">
      <div className="conversation-list-head">
        <Select label="Owner" value={owner} options={OWNERS} onChange={onOwner} />
        <Button icon="plus" aria-label="New conversation" onClick={onNew}>
          New
        </Button>
      </div>
      <div className="conversation-list-filter">
        <SearchInput
          label="Search conversations"
          placeholder="Search"
          value={text}
          onChange={(value) => setText(value, { replace: true })}
        />
        <Select
          label="Status"
          value={status}
          options={STATUSES}
          onChange={(value) => setStatus(value === "any" ? undefined : value, { replace: true })}
        />
      </div>
      <div className="conversation-list-body">
        <Fetched state={list}>
          {(all) => {
            // The server searches what one has said; of the org it lists no content, so there is only what is shown.
            const rows = owner === "org" ? all.filter((row) => isWanted(row, text, status)) : all;
            if (all.length === 0 && !list.isFiltered) return <NoConversations owner={owner} />;
            return (
              <>
                {rows.length === 0 && (
                  <p className="conversation-list-none">
                    {list.hasMore && owner === "org"
                      ? `None of the newest ${all.length} matches.`
                      : "No conversation matches."}
                  </p>
                )}
                <ul>
                  {rows.map((row) => (
                    <Entry key={row.conv_id} row={row} owner={owner} isSelected={row.conv_id === selected} />
                  ))}
                </ul>
                {list.hasMore && (
                  <Button kind="bare" onClick={list.loadMore}>
                    Load more
                  </Button>
                )}
              </>
            );
          }}
        </Fetched>
      </div>
    </nav>
  );
}

/** The empty state of the list. */
export function NoConversations({ owner, action }: { readonly owner: Owner; readonly action?: ReactNode }) {
  return (
    <Empty title="No conversations" icon="conversations" action={action}>
      {owner === "own"
        ? "Start one: the engine of this app answers."
        : "Conversations of all users in this org appear here."}
    </Empty>
  );
}

/** Whether a conversation has the status, and the text in its title, id, owner or failure. */
function isWanted(row: ListedConversation, text: string, status: string): boolean {
  if (status !== "any" && row.run !== status) return false;
  const { title, conv_id, subject, error } = row;
  const words = text.toLowerCase().split(/\s+/);
  const found = [title, conv_id, subject, error?.code, error?.message].join("\n").toLowerCase();
  return words.every((word) => found.includes(word));
}

interface EntryProps {
  readonly row: ListedConversation;
  readonly owner: Owner;
  readonly isSelected: boolean;
}

function Entry({ row, owner, isSelected }: EntryProps) {
  const { conv_id, title, updated_at, run, error, subject, sockets = 0 } = row;
  // The filter stays when one is opened.
  const params = new URLSearchParams(window.location.search);
  const kept = { q: params.get("q") ?? undefined, status: params.get("status") ?? undefined };
  const href = hrefTo("conversations", {
    conv: conv_id,
    whose: owner === "org" ? owner : undefined,
    ...kept,
  });
  const showsRun = ["running", "queued", "waiting", "failed"].includes(run);
  return (
    <li>
      <a
        className={classNames("conversation-entry", isSelected && "conversation-entry-selected")}
        href={href}
        aria-current={isSelected ? "page" : undefined}
      >
        <span className="conversation-title">
          {title !== "" ? title : <span className="mono">{shortenMiddle(conv_id, 28)}</span>}
        </span>
        <span className="conversation-meta">
          {subject !== undefined && <span>by {subject}</span>}
          <Ago at={updated_at} />
          {sockets > 0 && <span>{sockets} connected</span>}
          {showsRun && <StateBadge state={stateOf(run)} word={RUN_STATUS[run] ?? run} />}
        </span>
        {error && (
          <span className="conversation-error" title={`${error.code}: ${error.message}`}>
            {error.message || error.code}
          </span>
        )}
      </a>
    </li>
  );
}
