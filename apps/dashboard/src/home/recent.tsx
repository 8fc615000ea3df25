import { useKhala, useList } from "@khala/client/react";
import { type UseQueryResult, useQueries } from "@tanstack/react-query";
import { useMemo } from "react";
import { useFetch } from "../data/fetch.ts";
import { useFrozen } from "../data/pause.tsx";
import { completeAll } from "../data/wire.ts";
import { links } from "../router.ts";
import { useSession } from "../session.tsx";
import { Icon } from "../ui/controls/icons.tsx";
import { knownStateOf, type State, stateOf } from "../ui/feedback/state_badge.tsx";
import { Ago } from "../ui/format/ago.tsx";
import { shortenMiddle } from "../ui/format/id.tsx";
import { useThrottled } from "../ui/hooks.ts";
import { newest } from "./newest.ts";

const SHOWN = 4;
const EVERY_MS = 3_000;
/** A larger topic is not copied to this page for a list of four. */
const MAX_DOCUMENTS = 2_000;
const MAX_TOPICS = 4;
/** However fast documents change, the list is sorted a few times a second. */
const THROTTLE_MS = 250;

interface RowData {
  readonly key: string;
  readonly href: string;
  readonly label: string;
  /** Undefined: it has no state, so it gets no mark of success either. */
  readonly state: State | undefined;
  readonly word: string;
  readonly at?: string | undefined;
}

interface RecentProps {
  readonly label: string;
  readonly rows: readonly RowData[];
  /** Shown when there are no rows. */
  readonly none?: string | undefined;
}

function Recent({ label, rows, none }: RecentProps) {
  if (rows.length === 0) return none === undefined ? null : <p className="recent-none">{none}</p>;
  return (
    <ul className="recent" aria-label={label}>
      {rows.map(({ key, href, label: name, state, word, at }) => (
        <li key={key}>
          <a className="recent-row" href={href} title={key}>
            <span className={state ?? "quiet"}>
              {state ? <Icon name={state} size={12} /> : <span className="recent-dot" />}
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

interface Item {
  readonly key: string;
  readonly data: unknown;
  readonly updatedAt?: string;
}

/** Outside of the component, so that the result is the same while the data is. */
const dataOf = (results: readonly UseQueryResult<readonly Item[]>[]) => results.map(({ data }) => data);

/** The documents that changed last, live, of all topics that are small enough to be copied here. */
export function RecentDocuments() {
  const { ops } = useKhala();
  const { live } = useSession();
  const { data } = useFetch(["recent-topics"], () => ops.topics(), 5 * EVERY_MS);
  const topics = useMemo(
    () =>
      (data?.topics ?? [])
        .filter(
          ({ topic = "", documents }) =>
            // Agents, correlations and approvals have pages of their own; notifications tell of the other documents.
            !/^(blackboard\.|approvals$|runtime\.notifications$)/.test(topic) &&
            Number(documents ?? 0) < MAX_DOCUMENTS,
        )
        .map(({ topic = "" }) => topic)
        .slice(0, MAX_TOPICS),
    [data],
  );
  const lists = useThrottled(
    useQueries({ queries: topics.map((topic) => live.list(topic)), combine: dataOf }),
    THROTTLE_MS,
  );
  const rows = useMemo(() => {
    const all = lists.flatMap((items = [], index) =>
      newest(items, changedAt, SHOWN).map((item) => documentRow(topics[index] ?? "", item)),
    );
    return newest(all, ({ at = "" }) => at, SHOWN);
  }, [lists, topics]);
  const isLoaded = data !== undefined && lists.length === topics.length && !lists.includes(undefined);
  const isTooLarge = topics.length === 0 && data?.topics?.some(({ documents }) => Number(documents) > 0);
  return (
    <Recent
      label="Recently changed documents"
      rows={useFrozen(rows)}
      none={
        isLoaded ? (isTooLarge ? "Too many to list here. Open a topic in Sync." : "No documents") : undefined
      }
    />
  );
}

/** When a document changed, by its own field, else by the server's. */
function changedAt({ data, updatedAt = "" }: Item): string {
  return textIn(data, "updated_at", "created_at") ?? updatedAt;
}

/** The first of these fields that has a text. */
function textIn(data: unknown, ...names: readonly string[]): string | undefined {
  const fields: Readonly<Record<string, unknown>> = Object(data);
  return names.map((name) => fields[name]).find((value) => typeof value === "string" && value !== "") as
    | string
    | undefined;
}

function documentRow(topic: string, item: Item): RowData {
  const { key, data } = item;
  // Such as `failed`, or the end of `run.failed`.
  const status = textIn(data, "status") ?? textIn(data, "kind")?.split(".").at(-1) ?? "";
  return {
    key,
    href: links.document(topic, key),
    label: textIn(data, "title", "name", "subject", "label", "text", "summary") ?? shortenMiddle(key, 22),
    state: knownStateOf(status),
    word: (status === "running" ? textIn(data, "last_step") : undefined) ?? status,
    at: changedAt(item) || undefined,
  };
}

/** The user's latest conversations. */
export function RecentConversations() {
  const { conversations } = useKhala();
  const { data, error } = useFetch(
    ["recent-conversations"],
    (signal) => conversations.list({ limit: SHOWN, signal }),
    EVERY_MS,
  );
  const rows = (data?.conversations ?? []).slice(0, SHOWN).map(
    ({ conv_id = "", title = "", run, updated_at }): RowData => ({
      key: conv_id,
      href: links.conversation(conv_id),
      label: title || shortenMiddle(conv_id, 18),
      state: run?.status ? stateOf(run.status) : undefined,
      word: run?.status ?? "",
      at: updated_at,
    }),
  );
  return (
    <Recent label="Recent conversations" rows={rows} none={data ? "No conversations" : error?.message} />
  );
}

const AGENT = { name: "", state: "running", running: 0, waiting: 0, done: 0, dead: 0 };

/** The agents and their counts, live. */
export function Agents() {
  const { board } = useKhala();
  const { items } = useFrozen(
    useThrottled(useList<Partial<Record<keyof typeof AGENT, string>>>("blackboard.agents"), THROTTLE_MS),
  );
  // An agent without tasks has no document yet.
  const fetched = useFetch(
    items.length === 0 ? ["recent-agents"] : undefined,
    () => board.agents(),
    EVERY_MS,
  );
  const rows = useMemo(() => {
    const agents = items.length === 0 ? fetched.data?.agents : items.map(({ data }) => data);
    return completeAll(AGENT, agents)
      .slice(0, SHOWN)
      .map((agent): RowData => {
        const [state, word] = agentStatus(agent);
        return { key: agent.name, href: links.agent(agent.name), label: agent.name, state, word };
      });
  }, [items, fetched.data]);
  return <Recent label="Agents" rows={rows} none={fetched.data ? "No agents" : fetched.error?.message} />;
}

const AGENT_STATES: Readonly<Record<string, string>> = {
  open: "breaker open",
  half_open: "breaker half open",
};

/** Dead letters are a failure, however idle the agent is. */
function agentStatus({ state, running, waiting, done, dead }: Readonly<typeof AGENT>): [State, word: string] {
  if (state !== "running") return [stateOf(state), AGENT_STATES[state] ?? state];
  if (running > 0) return ["working", `${running} running`];
  const word = waiting > 0 ? `${waiting} queued` : `${done} done`;
  if (dead > 0) return ["failed", `${word}, ${dead} dead`];
  return [waiting > 0 ? "waiting" : "ok", word];
}
