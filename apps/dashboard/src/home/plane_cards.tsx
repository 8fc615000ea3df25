import type { ReactNode } from "react";
import { classNames } from "../parts/class_names.ts";
import { Icon, type IconName } from "../parts/icons.tsx";
import { countText, rateText } from "../parts/numbers.ts";
import { Sparkline } from "../parts/sparkline.tsx";
import { StateBadge, stateOf } from "../parts/state_badge.tsx";
import { hrefTo, links, ROOMS } from "../router.ts";
import { homeWords as words } from "../strings/home.ts";
import type { Overview, PlaneHealth } from "./overview_read.ts";
import { Agents, RecentConversations, RecentDocuments } from "./recent.tsx";

export interface PlaneCardsProps {
  readonly overview: Overview;
  readonly samples: readonly Overview[];
  /** Otherwise nobody knows how the planes are now. */
  readonly isLive: boolean;
}

/** A minute of samples is what a small line can show. */
const SHOWN = 60;

/** The three planes: health, rate, and what waits. Every number leads to what it counts. */
export function PlaneCards({ overview, samples, isLive }: PlaneCardsProps) {
  const { sync, conversations, blackboard } = overview;
  const recent = samples.slice(-SHOWN);
  return (
    <div className="planes">
      <Card
        name={words.sync}
        about={words.about.sync}
        list={<RecentDocuments />}
        icon="sync"
        href={ROOMS.sync}
        plane={sync}
        isLive={isLive}
        value={rateText(sync.perSecond)}
        unit={words.unit.updates}
        trend={words.trend.sync}
        values={recent.map((sample) => sample.sync.perSecond)}
      >
        <Figure value={sync.lag} word={words.lag} href={hrefTo("sync", { sort: "lag" })} alarming />
        <Figure value={sync.topics} word={words.topics(sync.topics)} href={ROOMS.sync} />
        <Figure
          value={sync.subscribers}
          word={words.followers(sync.subscribers)}
          href={hrefTo("sync", { tab: "clients" })}
        />
        <Figure value={sync.resyncs} word={words.resyncs(sync.resyncs)} href={links.closes("stale_cursor")} />
      </Card>
      <Card
        name={words.conversations}
        about={words.about.conversations}
        list={<RecentConversations />}
        icon="conversations"
        href={ROOMS.conversations}
        plane={conversations}
        isLive={isLive}
        value={countText(conversations.running)}
        unit={words.unit.running}
        trend={words.trend.conversations}
        values={recent.map((sample) => sample.conversations.perSecond)}
      >
        <Figure value={conversations.open} word={words.open} href={ROOMS.conversations} />
        <Figure
          value={conversations.sockets}
          word={words.sockets(conversations.sockets)}
          href={hrefTo("operations", { tab: "sockets", q: "follows:conversation" })}
        />
        <Figure
          value={conversations.resyncs}
          word={words.resyncs(conversations.resyncs)}
          href={ROOMS.conversations}
        />
        <Figure
          value={conversations.failed}
          word={words.failedRuns}
          href={hrefTo("conversations", { q: "status:failed" })}
          alarming
        />
      </Card>
      <Card
        name={words.blackboard}
        about={words.about.blackboard}
        // An app without agents has no topic of them to follow.
        list={blackboard.agents > 0 ? <Agents /> : <p className="recent-none">{words.noAgent}</p>}
        icon="blackboard"
        href={ROOMS.blackboard}
        plane={blackboard}
        isLive={isLive}
        value={rateText(blackboard.perSecond)}
        unit={words.unit.tasks}
        trend={words.trend.blackboard}
        values={recent.map((sample) => sample.blackboard.perSecond)}
      >
        <Figure value={blackboard.lag} word={words.lag} href={links.lag()} alarming />
        <Figure value={blackboard.waiting} word={words.waiting} href={ROOMS.blackboard} />
        <Figure value={blackboard.retried} word={words.retried} href={ROOMS.blackboard} />
        <Figure
          value={blackboard.dead}
          word={words.deadLetter(blackboard.dead)}
          href={links.deadLetters()}
          alarming
          look={blackboard.dead > 0}
        />
      </Card>
    </div>
  );
}

interface CardProps {
  readonly name: string;
  readonly icon: IconName;
  readonly href: string;
  readonly plane: PlaneHealth;
  readonly isLive: boolean;
  readonly value: string;
  readonly unit: string;
  readonly trend: string;
  readonly values: readonly number[];
  readonly children: ReactNode;
  /** What the plane is for, in a sentence. */
  readonly about: string;
  /** The things behind the numbers. */
  readonly list: ReactNode;
}

function Card({
  name,
  icon,
  href,
  plane,
  isLive,
  value,
  unit,
  trend,
  values,
  children,
  about,
  list,
}: CardProps) {
  return (
    <section className="card plane" aria-label={name}>
      <header className="plane-head">
        <Icon name={icon} />
        <h2>
          <a href={href}>{name}</a>
        </h2>
        {isLive ? (
          <StateBadge state={stateOf(plane.state)} word={plane.state} />
        ) : (
          <StateBadge state="waiting" word={words.asOf} />
        )}
      </header>
      <p className="plane-about">{about}</p>
      <a className="plane-rate" href={href}>
        <span>
          <strong>{value}</strong> {unit}
        </span>
        <Sparkline label={trend} values={values} />
      </a>
      <ul className="plane-numbers">{children}</ul>
      {list}
      {plane.message !== "" && <p className="plane-message">{plane.message}</p>}
    </section>
  );
}

interface FigureProps {
  readonly value: number;
  readonly word: string;
  readonly href: string;
  /** A value that is not 0 is not well. */
  readonly alarming?: boolean;
  readonly look?: boolean;
}

function Figure({ value, word, href, alarming = false, look = false }: FigureProps) {
  return (
    <li>
      <a href={href} className={classNames("plane-number", alarming && value > 0 && "waiting")}>
        <strong>{countText(value)}</strong> {word}
        {look && <span className="plane-look"> → {words.look}</span>}
      </a>
    </li>
  );
}
