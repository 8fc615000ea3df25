import { useApp } from "../data/app.ts";
import { type Overview, type OverviewHistory, useOverview } from "../data/overview.tsx";
import { hrefTo, links } from "../router.ts";
import { useSession } from "../session.tsx";
import { Failure, Loading } from "../ui/feedback/notices.tsx";
import { StateBadge, stateOf } from "../ui/feedback/state_badge.tsx";
import { timeOfDay } from "../ui/format/ago.tsx";
import { bytesText, countText, durationText, rateText } from "../ui/format/numbers.ts";
import { AppSummary } from "./app_summary.tsx";
import { PlaneCards } from "./plane_cards.tsx";
import { TryIt } from "./try_it.tsx";
import "./home.css";

/** The Home page: the state of the server, its app or the demo, and the three planes. */
export default function HomePage() {
  const { latest, samples, error, isLive } = useOverview();
  const app = useApp();
  return (
    <div className="home">
      <div className="home-column">
        <ServerStatus latest={latest} isLive={isLive} />
        {app.isDemo ? <TryIt /> : <AppSummary app={app} />}
        {latest ? (
          <>
            <PlaneCards overview={latest} app={app} samples={samples} isLive={isLive} />
            <ServerFigures overview={latest} />
          </>
        ) : error ? (
          <Failure error={error} />
        ) : (
          <Loading label="Waiting for the first sample…" />
        )}
      </div>
    </div>
  );
}

const BACKENDS: Readonly<Record<string, string>> = { postgres: "Postgres", redis: "Redis", kafka: "Kafka" };

/** Whether the planes are ok, their storage backends, and the uptime. */
function ServerStatus({ latest, isLive }: Pick<OverviewHistory, "latest" | "isLive">) {
  const { backends } = useSession().about;
  const names = new Set(Object.values(backends));
  const hasEmbedded = [...names].some((name) => name.startsWith("embedded"));
  // Embedded Postgres is Postgres: it is listed once.
  if (hasEmbedded) names.delete("postgres");
  const backendText = [...names].map((name) =>
    name.startsWith("embedded") ? "embedded Postgres" : (BACKENDS[name] ?? name),
  );
  return (
    <p className="server-status">
      {latest &&
        (isLive ? (
          <PlaneStatus overview={latest} />
        ) : (
          <StateBadge state="waiting" word={`Last update at ${timeOfDay(latest.at)}`} />
        ))}
      <span>{backendText.join(" · ")}</span>
      {latest && <span>up {durationText(latest.uptime_s * 1000)}</span>}
    </p>
  );
}

function PlaneStatus({ overview: { sync, conversations, blackboard } }: { readonly overview: Overview }) {
  const planes = [
    { name: "Sync", ...sync },
    { name: "Conversations", ...conversations },
    { name: "Blackboard", ...blackboard },
  ].filter(({ state }) => state !== "ok");
  if (planes.length === 0) return <StateBadge state="ok" word="All planes ok" />;
  return planes.map(({ name, state, message }) => {
    // The card of the plane has the whole message.
    const [cause = ""] = message.split(/(?<=\.)\s/);
    return <StateBadge key={name} state={stateOf(state)} word={`${name} ${state}: ${cause}`} />;
  });
}

/** The gateway and the process: figures that link to Operations. */
function ServerFigures({ overview: { gateway, process } }: { readonly overview: Overview }) {
  const load = hrefTo("operations", { tab: "load" });
  const figures = [
    [countText(gateway.sockets), gateway.sockets === 1 ? "socket" : "sockets", links.sockets()],
    [rateText(gateway.messages_per_s), "messages/s", load],
    [`${bytesText(gateway.bytes_per_s)}/s`, "sent", load],
    [
      countText(gateway.slow_closes),
      gateway.slow_closes === 1 ? "slow consumer closed" : "slow consumers closed",
      links.closes("slow_consumer"),
    ],
    [rateText(gateway.errors_per_s), "errors/s", links.errors()],
    [countText(gateway.refused), "rejected", links.errors()],
    [bytesText(process.rss_bytes), "memory", load],
    [`${rateText(process.cpu_percent)} %`, "CPU", load],
    [durationText(process.event_loop_p99_ms), "event loop p99", load],
  ] as const;
  return (
    <ul className="server-figures" aria-label="Server">
      {figures.map(([value, word, href]) => (
        <li key={word}>
          <a href={href}>
            <strong>{value}</strong> {word}
          </a>
        </li>
      ))}
    </ul>
  );
}
