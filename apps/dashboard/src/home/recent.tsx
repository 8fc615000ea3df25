import { useKhala, useList } from "@khala/client/react";
import { useEffect, useMemo, useState } from "react";
import { Ago } from "../parts/ago.tsx";
import { useAsk } from "../parts/asking.ts";
import { useBatched } from "../parts/batched.ts";
import { Icon } from "../parts/icons.tsx";
import { shortenMiddle } from "../parts/id.tsx";
import { useFrozen } from "../parts/pause.tsx";
import { type State, stateOf } from "../parts/state_badge.tsx";
import { links } from "../router.ts";
import { homeWords as words } from "../strings/home.ts";
import { newest } from "./newest.ts";

const SHOWN = 4;
const ASK_MS = 3_000;
/** A topic with more is not copied to this page for a list of four. */
const SMALL = 2_000;
const FOLLOWED = 4;
const READ_MS = 250;

interface RowData {
  readonly key: string;
  readonly href: string;
  readonly label: string;
  readonly state: State;
  readonly word: string;
  readonly at?: string | undefined;
}

interface RecentProps {
  readonly label: string;
  readonly rows: readonly RowData[];
  /** Said when there is nothing. */
  readonly none?: string | undefined;
}

/** The last things of a plane: what its numbers are made of. */
function Recent({ label, rows, none }: RecentProps) {
  if (rows.length === 0) return none === undefined ? null : <p className="recent-none">{none}</p>;
  return (
    <ul className="recent" aria-label={label}>
      {rows.map(({ key, href, label: name, state, word, at }) => (
        <li key={key}>
          <a className="recent-row" href={href} title={key}>
            <span className={state}>
              <Icon name={state} size={12} />
            </span>
            <span className="recent-label">{name}</span>
            <span className="recent-word">{word}</span>
            {at !== undefined && <Ago at={at} />}
          </a>
        </li>
      ))}
    </ul>
  );
}

/** Documents that changed last, live, of all topics that are small enough to be copied here. */
export function RecentDocuments() {
  const { ops } = useKhala();
  const { data } = useAsk("topics of home", () => ops.topics(), { everyMs: 5 * ASK_MS });
  const topics = (data?.topics ?? [])
    .filter(({ topic = "", documents = 0 }) => !topic.startsWith("blackboard.") && Number(documents) < SMALL)
    .map(({ topic = "" }) => topic)
    .slice(0, FOLLOWED);
  const rows = useFrozen(useLastChanged(topics.join(" ")));
  const isLarge = topics.length === 0 && (data?.topics ?? []).some(({ documents }) => Number(documents) > 0);
  return (
    <Recent
      label={words.lastDocuments}
      rows={rows ?? []}
      none={data && rows && (isLarge ? words.largeTopics : words.noDocument)}
    />
  );
}

/**
 * The newest documents of topics, which are named in one text so that the same ones are the same. Undefined until the topics
 * are there.
 */
function useLastChanged(names: string): readonly RowData[] | undefined {
  const { sync } = useKhala();
  const [read, setRead] = useState<{ readonly names: string; readonly rows: readonly RowData[] }>();
  useEffect(() => {
    const topics = names === "" ? [] : names.split(" ");
    let due: ReturnType<typeof setTimeout> | undefined;
    // However fast documents change: sorting them is done a few times a second.
    const soon = () => {
      due ??= setTimeout(sort, READ_MS);
    };
    const sort = () => {
      due = undefined;
      if (topics.some((topic) => sync.list(topic).phase === "loading")) return;
      const all = topics.flatMap((topic) =>
        newest(sync.list(topic).items, changedAt, SHOWN).map((item) => documentRow(topic, item)),
      );
      setRead({ names, rows: newest(all, ({ at = "" }) => at, SHOWN) });
    };
    const stops = topics.map((topic) => sync.subscribe(topic, soon));
    sort();
    return () => {
      clearTimeout(due);
      for (const stop of stops) stop();
    };
  }, [sync, names]);
  return read?.names === names ? read.rows : undefined;
}

interface ItemLike {
  readonly key: string;
  readonly data: unknown;
  readonly updatedAt?: string;
}

/** When a document changed: as it says itself, else as the server does. */
function changedAt({ data, updatedAt = "" }: ItemLike): string {
  return textIn(data, "updated_at", "created_at") ?? updatedAt;
}

/** The first of these fields that has a text. */
function textIn(data: unknown, ...names: readonly string[]): string | undefined {
  const fields: Readonly<Record<string, unknown>> = Object(data);
  for (const name of names) {
    const value = fields[name];
    if (typeof value === "string" && value !== "") return value;
  }
  return undefined;
}

function documentRow(topic: string, item: ItemLike): RowData {
  const { key, data } = item;
  const text = (...names: readonly string[]) => textIn(data, ...names);
  const status = text("status") ?? "";
  return {
    key,
    href: links.document(topic, key),
    label: text("title", "name", "text") ?? key,
    state: status === "" ? "ok" : stateOf(status),
    word: (status === "running" ? text("last_step") : undefined) ?? status,
    at: changedAt(item) || undefined,
  };
}

/** The person's conversations that something was said in last. */
export function RecentConversations() {
  const { conversations } = useKhala();
  const { data, error } = useAsk(
    "conversations of home",
    (signal) => conversations.list({ limit: SHOWN, signal }),
    {
      everyMs: ASK_MS,
    },
  );
  const rows = (data?.conversations ?? []).slice(0, SHOWN).map(
    ({ conv_id = "", title = "", run, updated_at }): RowData => ({
      key: conv_id,
      href: links.conversation(conv_id),
      label: title || shortenMiddle(conv_id, 18),
      state: run?.status ? stateOf(run.status) : "ok",
      word: run?.status ?? "",
      at: updated_at,
    }),
  );
  return (
    <Recent label={words.lastConversations} rows={rows} none={data ? words.noConversation : error?.message} />
  );
}

/** The agents and what each has done, live. */
export function Agents() {
  const { board } = useKhala();
  const { items } = useFrozen(useBatched(useList<AgentFields>("blackboard.agents"), 250));
  // Agents that never worked have no document yet.
  const asked = useAsk(items.length === 0 ? "agents of home" : undefined, () => board.agents(), {
    everyMs: ASK_MS,
  });
  const agents = useMemo<readonly AgentFields[]>(
    () => (items.length === 0 ? (asked.data?.agents ?? []) : items.map(({ data }) => data)),
    [items, asked.data],
  );
  const rows = useMemo(
    () =>
      agents.slice(0, SHOWN).map((data): RowData => {
        const { name = "", state = "running", running = 0, waiting = 0, done = 0, dead = 0 } = data;
        return {
          key: name,
          href: links.agent(name),
          label: name,
          state: agentState(data),
          word:
            state !== "running"
              ? state.replace("_", " ")
              : words.agentWord(Number(running), Number(waiting), Number(done), Number(dead)),
        };
      }),
    [agents],
  );
  const none = asked.data ? words.noAgent : asked.error?.message;
  return <Recent label={words.theAgents} rows={rows} none={none} />;
}

/** Parked work is not well, however idle the agent is. */
function agentState({ state = "running", running, waiting, dead }: AgentFields): State {
  if (state !== "running") return stateOf(state);
  if (Number(running ?? 0) > 0) return "working";
  if (Number(dead ?? 0) > 0) return "failed";
  return Number(waiting ?? 0) > 0 ? "waiting" : "ok";
}

interface AgentFields {
  readonly name?: string;
  readonly state?: string;
  readonly running?: string;
  readonly waiting?: string;
  readonly done?: string;
  readonly dead?: string;
}
