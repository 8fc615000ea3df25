import { useConnection, useKhala } from "@khala/client/react";
import { Component, lazy, type ReactNode, Suspense, useEffect, useMemo, useState } from "react";
import { OverviewProvider } from "./home/overview.tsx";
import { paletteSources } from "./palette_sources.ts";
import { Button } from "./parts/button.tsx";
import { CommandPalette } from "./parts/command_palette.tsx";
import { ConnectionPill } from "./parts/connection_pill.tsx";
import { Icon } from "./parts/icons.tsx";
import { Pause, PauseProvider } from "./parts/pause.tsx";
import { Empty, Loading } from "./parts/states.tsx";
import { Tooltip, TooltipProvider } from "./parts/tooltip.tsx";
import { ROOMS, type RoomName, useRoom } from "./router.ts";
import { SignedIn, useSession } from "./session.tsx";
import { appWords as words } from "./strings/app.ts";
import { useTheme } from "./theme.ts";
import "./app.css";

const NAMES = Object.keys(ROOMS) as readonly RoomName[];
const VIEWS = {
  home: lazy(() => import("./home/home.tsx")),
  sync: lazy(() => import("./sync/sync_room.tsx")),
  conversations: lazy(() => import("./conversations/conversations_room.tsx")),
  blackboard: lazy(() => import("./blackboard/blackboard_room.tsx")),
  operations: lazy(() => import("./operations/operations_room.tsx")),
} as const;

/** The dashboard: the rail with the rooms, the line with the connection, and the room. */
export function App() {
  return (
    <TooltipProvider delay={300}>
      <SignedIn>
        <PauseProvider>
          <OverviewProvider>
            <Frame />
          </OverviewProvider>
        </PauseProvider>
      </SignedIn>
    </TooltipProvider>
  );
}

function Frame() {
  const room = useRoom();
  const View = VIEWS[room];
  useEffect(() => {
    document.title = room === "home" ? words.name : `${words.room[room]} · ${words.name}`;
  }, [room]);
  return (
    <div className="frame">
      <a className="skip" href="#main">
        {words.skip}
      </a>
      <Rail room={room} />
      <div className="frame-main">
        <Top room={room} />
        <main id="main" className="room" tabIndex={-1}>
          <RoomBoundary key={room}>
            <Suspense fallback={<Loading />}>
              <View />
            </Suspense>
          </RoomBoundary>
        </main>
      </div>
    </div>
  );
}

function Rail({ room }: { readonly room: RoomName }) {
  const { about, changeToken } = useSession();
  const [theme, nextTheme] = useTheme();
  const icon = theme === "system" ? "screen" : theme === "dark" ? "moon" : "sun";
  return (
    <nav className="rail" aria-label={words.rooms}>
      <div className="rail-brand">
        <span className="mark" aria-hidden="true">
          <svg viewBox="0 0 32 32" width="14" height="14" role="presentation">
            <path
              d="M10 6v20M23 6 12 16l11 10"
              fill="none"
              stroke="currentColor"
              strokeWidth="4"
              strokeLinecap="round"
              strokeLinejoin="round"
            />
          </svg>
        </span>
        <strong>{words.name}</strong>
        <span className="rail-version">{about.version}</span>
      </div>
      <ul className="rail-rooms">
        {NAMES.map((name) => (
          <li key={name}>
            <a href={ROOMS[name]} className="rail-room" aria-current={name === room ? "page" : undefined}>
              <Icon name={name} />
              <span className="rail-long">{words.room[name]}</span>
              <span className="rail-short">{words.shortRoom[name]}</span>
            </a>
          </li>
        ))}
      </ul>
      <div className="rail-foot">
        <Tooltip text={words.theme[theme]} side="top">
          <Button kind="bare" icon={icon} aria-label={words.theme[theme]} onClick={nextTheme} />
        </Tooltip>
        <Button kind="bare" icon="key" onClick={changeToken}>
          {words.token}
        </Button>
      </div>
    </nav>
  );
}

function Top({ room }: { readonly room: RoomName }) {
  const khala = useKhala();
  const status = useConnection();
  const { isPasted, changeToken } = useSession();
  const [isFinding, setFinding] = useState(false);
  const [theme, nextTheme] = useTheme();
  const sources = useMemo(
    () =>
      paletteSources(khala, [
        { id: "theme", label: words.nextTheme, hint: words.theme[theme], icon: "moon", run: nextTheme },
        { id: "token", label: words.changeToken, icon: "key", run: changeToken },
      ]),
    [khala, theme, nextTheme, changeToken],
  );
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      if (event.key.toLowerCase() !== "k" || !(event.metaKey || event.ctrlKey) || event.shiftKey) return;
      event.preventDefault();
      setFinding((open) => !open);
    };
    document.addEventListener("keydown", onKey);
    return () => document.removeEventListener("keydown", onKey);
  }, []);
  return (
    <header className="top">
      <h1>{words.room[room]}</h1>
      <div className="top-end">
        <button type="button" className="top-search" onClick={() => setFinding(true)}>
          <Icon name="search" />
          <span className="top-search-word">{words.search}</span>
          <kbd>⌘K</kbd>
        </button>
        <Pause />
        <ConnectionPill
          status={status}
          onClick={
            status.state === "unauthorised" && isPasted ? changeToken : () => khala.connection.connect()
          }
        />
      </div>
      <CommandPalette open={isFinding} onClose={() => setFinding(false)} sources={sources} />
    </header>
  );
}

/** A room that throws does not take the others with it. */
class RoomBoundary extends Component<{ readonly children: ReactNode }, { readonly error?: Error }> {
  override state: { readonly error?: Error } = {};

  static getDerivedStateFromError(error: Error) {
    return { error };
  }

  override render() {
    const { error } = this.state;
    if (!error) return this.props.children;
    const reload = (
      <Button icon="retry" onClick={() => window.location.reload()}>
        {words.reload}
      </Button>
    );
    return (
      <Empty icon="failed" title={words.roomFailed} action={reload}>
        <p>
          <code>{error.message}</code>
        </p>
        <p>{words.roomFailedBody}</p>
      </Empty>
    );
  }
}
