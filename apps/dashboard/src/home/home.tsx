import { timeOfDay } from "../parts/clock.ts";
import { durationText } from "../parts/numbers.ts";
import { StateBadge, stateOf } from "../parts/state_badge.tsx";
import { Failure, Loading } from "../parts/states.tsx";
import { useSession } from "../session.tsx";
import { homeWords as words } from "../strings/home.ts";
import { useOverview } from "./overview.tsx";
import type { Overview } from "./overview_read.ts";
import { PlaneCards } from "./plane_cards.tsx";
import { ServerLine } from "./server_line.tsx";
import { TryIt } from "./try_it.tsx";
import "./home.css";

/** Home: the server in a line, something to try, and the three planes. */
export default function Home() {
  const { latest, samples, error, isLive } = useOverview();
  return (
    <div className="home">
      <div className="home-column">
        <Standing overview={latest} isLive={isLive} />
        <TryIt />
        {latest ? (
          <>
            <PlaneCards overview={latest} samples={samples} isLive={isLive} />
            <ServerLine overview={latest} />
          </>
        ) : error ? (
          <Failure error={error} />
        ) : (
          <Loading label={words.waitingForFigures} />
        )}
      </div>
    </div>
  );
}

/** What runs here, and whether it is well. */
interface StandingProps {
  readonly overview: Overview | undefined;
  readonly isLive: boolean;
}

function Standing({ overview, isLive }: StandingProps) {
  const { about } = useSession();
  const { engines } = about;
  const names = [...new Set(Object.values(engines))].map((engine) =>
    engine.startsWith("embedded") ? words.embedded : (words.engine[engine] ?? engine),
  );
  // Embedded Postgres is Postgres: the planes that say so need not say it again.
  const shown = names.includes(words.embedded)
    ? names.filter((name) => name !== words.engine.postgres)
    : names;
  const planes = overview && [
    { name: words.sync, state: overview.sync.state },
    { name: words.conversations, state: overview.conversations.state },
    { name: words.blackboard, state: overview.blackboard.state },
  ];
  const ill = planes?.filter(({ state }) => state !== "ok") ?? [];
  const worst = ill.some(({ state }) => stateOf(state) === "failed") ? "failed" : "waiting";
  return (
    <p className="standing">
      {overview && !isLive && <StateBadge state="waiting" word={words.lastHeard(timeOfDay(overview.at))} />}
      {planes &&
        isLive &&
        (ill.length === 0 ? (
          <StateBadge state="ok" word={words.planesOk(planes.length)} />
        ) : (
          <StateBadge state={worst} word={words.planesNotOk(ill.map(({ name }) => name).join(", "))} />
        ))}
      <span>{shown.join(" · ")}</span>
      {overview && <span>{words.up(durationText(overview.uptimeMs))}</span>}
    </p>
  );
}
