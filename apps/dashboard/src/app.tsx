import { useConnection, useKhala } from "@khala/client/react";
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { Component, lazy, type ReactNode, Suspense, useEffect, useState } from "react";
import { CommandPalette } from "./command_palette.tsx";
import { ConnectionPill } from "./connection_pill.tsx";
import { OverviewProvider } from "./data/overview.tsx";
import { PauseButton, PauseProvider } from "./data/pause.tsx";
import { PAGES, type PageName, usePage } from "./router.ts";
import { SignedIn, useSession } from "./session.tsx";
import { useTheme } from "./theme.ts";
import { Button } from "./ui/controls/button.tsx";
import { Icon } from "./ui/controls/icons.tsx";
import { Tooltip, TooltipProvider } from "./ui/controls/tooltip.tsx";
import { Empty, Loading } from "./ui/feedback/notices.tsx";
import { ToastProvider } from "./ui/feedback/toast.tsx";
import "./app.css";

const NAMES = Object.keys(PAGES) as readonly PageName[];
const VIEWS = {
  home: lazy(() => import("./home/home_page.tsx")),
  sync: lazy(() => import("./sync/sync_page.tsx")),
  conversations: lazy(() => import("./conversations/conversations_page.tsx")),
  blackboard: lazy(() => import("./blackboard/blackboard_page.tsx")),
  operations: lazy(() => import("./operations/operations_page.tsx")),
  docs: lazy(() => import("./docs/docs_page.tsx")),
} as const;
const TITLES: Readonly<Record<PageName, { readonly long: string; readonly short: string }>> = {
  home: { long: "Home", short: "Home" },
  sync: { long: "Sync", short: "Sync" },
  conversations: { long: "Conversations", short: "Chats" },
  blackboard: { long: "Blackboard", short: "Board" },
  operations: { long: "Operations", short: "Ops" },
  docs: { long: "Docs", short: "Docs" },
};

/** Errors are shown at once, also without a network: polling is the retry. */
const queryClient = new QueryClient({
  defaultOptions: { queries: { retry: false, networkMode: "always" }, mutations: { networkMode: "always" } },
});

/** The dashboard: the sidebar with the pages, the top bar with the connection, and the page. */
export function App() {
  return (
    <QueryClientProvider client={queryClient}>
      <TooltipProvider delay={300}>
        <SignedIn>
          <PauseProvider>
            <ToastProvider>
              <OverviewProvider>
                <Frame />
              </OverviewProvider>
            </ToastProvider>
          </PauseProvider>
        </SignedIn>
      </TooltipProvider>
    </QueryClientProvider>
  );
}

function Frame() {
  const page = usePage();
  const View = page === undefined ? UnknownPage : VIEWS[page];
  const title = page === undefined ? "Page not found" : TITLES[page].long;
  useEffect(() => {
    document.title = page === "home" ? "Khala" : `${title} · Khala`;
  }, [page, title]);
  return (
    <div className="frame">
      <a className="skip" href="#main">
        Skip to content
      </a>
      <Sidebar page={page} />
      <div className="frame-main">
        <Top title={title} />
        <main id="main" className="page" tabIndex={-1}>
          <PageBoundary key={page ?? "unknown"}>
            <Suspense fallback={<Loading />}>
              <View />
            </Suspense>
          </PageBoundary>
        </main>
      </div>
    </div>
  );
}

function Sidebar({ page }: { readonly page: PageName | undefined }) {
  const { about, changeToken } = useSession();
  const [theme, nextTheme] = useTheme();
  const icon = theme === "system" ? "screen" : theme === "dark" ? "moon" : "sun";
  return (
    <nav className="sidebar" aria-label="Main">
      <div className="sidebar-brand">
        <span className="logo" aria-hidden="true">
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
        <strong>Khala</strong>
        <span className="sidebar-version">{about.version}</span>
      </div>
      <ul className="sidebar-pages">
        {NAMES.map((name) => (
          <li key={name}>
            <a href={PAGES[name]} className="sidebar-page" aria-current={name === page ? "page" : undefined}>
              <Icon name={name} />
              <span className="sidebar-long">{TITLES[name].long}</span>
              <span className="sidebar-short">{TITLES[name].short}</span>
            </a>
          </li>
        ))}
      </ul>
      <div className="sidebar-foot">
        <Tooltip text={`Theme: ${theme}`} side="top">
          <Button kind="bare" icon={icon} aria-label={`Theme: ${theme}`} onClick={nextTheme} />
        </Tooltip>
        <Button kind="bare" icon="key" onClick={changeToken}>
          Token
        </Button>
      </div>
    </nav>
  );
}

function Top({ title }: { readonly title: string }) {
  const khala = useKhala();
  const status = useConnection();
  const { isPasted, changeToken } = useSession();
  const [isSearching, setSearching] = useState(false);
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      if (event.key.toLowerCase() !== "k" || !(event.metaKey || event.ctrlKey) || event.shiftKey) return;
      event.preventDefault();
      setSearching((open) => !open);
    };
    document.addEventListener("keydown", onKey);
    return () => document.removeEventListener("keydown", onKey);
  }, []);
  return (
    <header className="top">
      <h1>{title}</h1>
      <div className="top-end">
        <button type="button" className="top-search" onClick={() => setSearching(true)}>
          <Icon name="search" />
          <span className="top-search-word">Search</span>
          <kbd>⌘K</kbd>
        </button>
        <PauseButton />
        <ConnectionPill
          status={status}
          onClick={
            status.state === "unauthorised" && isPasted ? changeToken : () => khala.connection.connect()
          }
        />
      </div>
      <CommandPalette open={isSearching} onClose={() => setSearching(false)} />
    </header>
  );
}

/** For an address that is none of this app: where one was going is said, and how to get on. */
function UnknownPage() {
  return (
    <Empty
      icon="search"
      title="This page does not exist"
      action={
        <a className="text-link" href={PAGES.home}>
          Go to Home
        </a>
      }
    >
      <p>
        No page has the address <code>{window.location.pathname}</code>. Check it for typing errors, or start
        at Home.
      </p>
    </Empty>
  );
}

/** A page that throws does not take the others with it. */
class PageBoundary extends Component<{ readonly children: ReactNode }, { readonly error?: Error }> {
  override state: { readonly error?: Error } = {};

  static getDerivedStateFromError(error: Error) {
    return { error };
  }

  override render() {
    const { error } = this.state;
    if (!error) return this.props.children;
    const reload = (
      <Button icon="retry" onClick={() => window.location.reload()}>
        Reload
      </Button>
    );
    return (
      <Empty icon="failed" title="This page crashed" action={reload}>
        <p>
          <code>{error.message}</code>
        </p>
        <p>The other pages still work. If it happens again after a reload, report it with the text above.</p>
      </Empty>
    );
  }
}
