import { useList } from "@khala/client/react";
import type { ReactNode } from "react";
import type { App } from "../data/app.ts";
import type { Overview, OverviewHistory, PlaneHealth } from "../data/overview.tsx";
import { useFrozen } from "../data/pause.tsx";
import { hrefTo, links, PAGES } from "../router.ts";
import { Sparkline } from "../ui/charts/sparkline.tsx";
import { Icon } from "../ui/controls/icons.tsx";
import { StateBadge, stateOf } from "../ui/feedback/state_badge.tsx";
import { classNames } from "../ui/format/class_names.ts";
import { countText, rateText } from "../ui/format/numbers.ts";
import { FirstRequest } from "./first_request.tsx";
import { Agents, RecentConversations, RecentDocuments } from "./recent.tsx";

export interface PlaneCardsProps extends Pick<OverviewHistory, "samples" | "isLive"> {
  readonly overview: Overview;
  readonly app: App;
}

/** A minute of samples, or ten before this page was opened, fits into a sparkline. */
const SHOWN = 60;

/** The three planes: health, rate and figures. Every number links to what it counts. */
export function PlaneCards({ overview, app, samples, isLive }: PlaneCardsProps) {
  const { sync, conversations, blackboard } = overview;
  const recent = samples.slice(-SHOWN);
  return (
    <div className="planes">
      <Card
        page="sync"
        name="Sync"
        about="Documents that stay current on every client."
        list={
          <>
            <RecentDocuments />
            <FirstRequest app={app} plane="sync" />
          </>
        }
        health={isLive ? sync : undefined}
        value={rateText(sync.updates_per_s)}
        unit="updates/s"
        trend="Updates per second"
        values={recent.map((sample) => sample.updates_per_s)}
      >
        <Figure value={sync.lag} word="lag" href={hrefTo("sync", { sort: "lag" })} alarming />
        <Figure value={sync.topics} word="topic" href={PAGES.sync} />
        <Figure value={sync.subscribers} word="subscriber" href={hrefTo("sync", { tab: "clients" })} />
        <Figure value={sync.resyncs} word="resync" href={links.closes("stale_cursor")} />
      </Card>
      <Card
        page="conversations"
        name="Conversations"
        about="Chats that survive reloads and crashes."
        list={
          <>
            <RecentConversations />
            <FirstRequest app={app} plane="conversations" />
          </>
        }
        health={isLive ? conversations : undefined}
        value={countText(conversations.running)}
        unit="running"
        trend="Events per second"
        values={recent.map((sample) => sample.events_per_s)}
      >
        <Figure value={conversations.readers} word="reader" href={PAGES.conversations} />
        <Figure
          value={conversations.sockets}
          word="socket"
          href={hrefTo("operations", { tab: "sockets", q: "follows:conversation" })}
        />
        <Figure value={conversations.resyncs} word="resync" href={PAGES.conversations} />
        <Figure value={conversations.failed} word="failed run" href={links.failedRuns()} alarming />
      </Card>
      <Card
        page="blackboard"
        name="Blackboard"
        about="Agents that work on shared artifacts."
        // An app without agents has no topic of agents.
        list={
          <>
            {blackboard.agents > 0 ? <Agents /> : <p className="recent-none">No agents</p>}
            <FirstRequest app={app} plane="blackboard" />
          </>
        }
        health={isLive ? blackboard : undefined}
        value={rateText(blackboard.tasks_per_s)}
        unit="tasks/s"
        trend="Tasks per second"
        values={recent.map((sample) => sample.tasks_per_s)}
      >
        <Figure value={blackboard.lag} word="lag" href={links.lag()} alarming />
        <Figure value={blackboard.waiting} word="queued" href={PAGES.blackboard} />
        <Figure value={blackboard.retried} word="retried" href={PAGES.blackboard} />
        <Figure value={blackboard.dead} word="dead letter" href={links.deadLetters()} alarming />
        {blackboard.agents > 0 && <PendingApprovals />}
      </Card>
    </div>
  );
}

interface CardProps {
  readonly page: "sync" | "conversations" | "blackboard";
  readonly name: string;
  /** Undefined while the connection is down. */
  readonly health: PlaneHealth | undefined;
  readonly value: string;
  readonly unit: string;
  readonly trend: string;
  readonly values: readonly number[];
  readonly children: ReactNode;
  /** What the plane is for, in a sentence. */
  readonly about: string;
  /** The items behind the numbers. */
  readonly list: ReactNode;
}

function Card(props: CardProps) {
  const { page, name, health } = props;
  return (
    <section className="card plane" aria-label={name}>
      <header className="plane-head">
        <Icon name={page} />
        <h2>
          <a href={PAGES[page]}>{name}</a>
        </h2>
        <StateBadge state={health ? stateOf(health.state) : "waiting"} word={health?.state ?? "unknown"} />
      </header>
      <p className="plane-about">{props.about}</p>
      <a className="plane-rate" href={PAGES[page]}>
        <span>
          <strong>{props.value}</strong> {props.unit}
        </span>
        <Sparkline label={props.trend} values={props.values} />
      </a>
      <ul className="plane-numbers">{props.children}</ul>
      {props.list}
      {health && health.message !== "" && (
        <p className="plane-message">
          {health.message} <a href={causeOf(page, health.message)}>Find the cause</a>
        </p>
      )}
    </section>
  );
}

/** Where what is wrong with a plane can be seen, by the server's words for it. */
function causeOf(page: CardProps["page"], message: string): string {
  if (page === "sync") return PAGES.sync;
  if (page === "conversations") return links.failedRuns();
  if (/lag too far behind|refused/i.test(message)) return links.lag();
  if (/dead letter/i.test(message)) return links.deadLetters();
  return hrefTo("blackboard", { tab: "agents" });
}

/** What waits for a person in this org, of agents and conversations: no health of a plane counts it. */
function PendingApprovals() {
  const { items } = useFrozen(useList("approvals", { select: ({ key }) => key }));
  return <Figure value={items.length} word="pending approval" href={links.approvals()} alarming />;
}

/** These words have no plural. */
const UNCOUNTED = new Set(["queued", "retried"]);

interface FigureProps {
  readonly value: number;
  /** In the singular. */
  readonly word: string;
  readonly href: string;
  /** A value other than 0 is a problem. */
  readonly alarming?: boolean;
}

function Figure({ value, word, href, alarming = false }: FigureProps) {
  return (
    <li>
      <a href={href} className={classNames("plane-number", alarming && value > 0 && "waiting")}>
        {word === "lag" && "lag "}
        <strong>{countText(value)}</strong>
        {word !== "lag" && ` ${value === 1 || UNCOUNTED.has(word) ? word : `${word}s`}`}
      </a>
    </li>
  );
}
