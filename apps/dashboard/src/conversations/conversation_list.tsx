import type { ReactNode } from "react";
import { Ago } from "../parts/ago.tsx";
import { Answered } from "../parts/answered.tsx";
import { Button } from "../parts/button.tsx";
import { classNames } from "../parts/class_names.ts";
import { shortenMiddle } from "../parts/id.tsx";
import { Select } from "../parts/select.tsx";
import { StateBadge, stateOf } from "../parts/state_badge.tsx";
import { Empty } from "../parts/states.tsx";
import { hrefTo } from "../router.ts";
import { conversationWords } from "../strings/conversations.ts";
import type { ListedConversation } from "./types.ts";
import type { ConversationList as List, Whose } from "./use_conversation_list.ts";

const words = conversationWords.list;

const WHOSE = [
  { value: "own", label: words.own },
  { value: "org", label: words.org },
] as const;

export interface ConversationListProps {
  readonly list: List;
  readonly whose: Whose;
  readonly onWhose: (whose: Whose) => void;
  readonly selected: string | undefined;
  readonly onNew: () => void;
}

/** The conversations at the left, newest first. */
export function ConversationList({ list, whose, onWhose, selected, onNew }: ConversationListProps) {
  return (
    <nav className="conversation-list" aria-label={words.label}>
      <div className="conversation-list-head">
        <Select label={words.whose} value={whose} options={WHOSE} onChange={onWhose} />
        <Button icon="plus" aria-label={words.newLabel} onClick={onNew}>
          {words.new}
        </Button>
      </div>
      <div className="conversation-list-body">
        <Answered asked={list.asked}>
          {(rows) =>
            rows.length === 0 ? (
              <NoConversations whose={whose} />
            ) : (
              <>
                <ul>
                  {rows.map((row) => (
                    <Entry key={row.convId} row={row} whose={whose} isSelected={row.convId === selected} />
                  ))}
                </ul>
                {list.more && (
                  <Button kind="bare" onClick={list.loadMore}>
                    {words.more}
                  </Button>
                )}
              </>
            )
          }
        </Answered>
      </div>
    </nav>
  );
}

/** There is none, and what begins one. */
export function NoConversations({ whose, action }: { readonly whose: Whose; readonly action?: ReactNode }) {
  return (
    <Empty title={words.emptyTitle} icon="conversations" action={action}>
      {whose === "own" ? words.emptyText : words.orgEmptyText}
    </Empty>
  );
}

interface EntryProps {
  readonly row: ListedConversation;
  readonly whose: Whose;
  readonly isSelected: boolean;
}

function Entry({
  row: { convId, title, updatedAt, run, subject, sockets = 0 },
  whose,
  isSelected,
}: EntryProps) {
  const isNews = run === "running" || run === "queued" || run === "failed";
  return (
    <li>
      <a
        className={classNames("conversation-entry", isSelected && "conversation-entry-selected")}
        href={hrefTo("conversations", { conv: convId, whose: whose === "org" ? whose : undefined })}
        aria-current={isSelected ? "page" : undefined}
      >
        <span className="conversation-title">
          {title !== "" ? title : <span className="mono">{shortenMiddle(convId, 28)}</span>}
        </span>
        <span className="conversation-meta">
          {subject !== undefined && <span>{words.subject(subject)}</span>}
          <Ago at={updatedAt} />
          {sockets > 0 && <span>{words.sockets(sockets)}</span>}
          {isNews && <StateBadge state={stateOf(run)} word={conversationWords.run[run] ?? run} />}
        </span>
      </a>
    </li>
  );
}
