import { useCallback } from "react";
import { navigate as go, usePathname, useSearch } from "wouter/use-browser-location";

/** The pages, by their paths. All other state of a screen is in the query string. */
export const PAGES = {
  home: "/",
  sync: "/sync",
  conversations: "/conversations",
  blackboard: "/blackboard",
  operations: "/operations",
  docs: "/docs",
} as const;

/** A page of the dashboard. */
export type PageName = keyof typeof PAGES;

/** Parameters of the query string: undefined and "" remove one. */
export type Params = Readonly<Record<string, string | number | undefined>>;

interface NavigateOptions {
  /** Replaces the history entry: for typed text, and for what follows from something else. */
  readonly replace?: boolean;
}

/** The page that the address names; undefined for an unknown path. */
export function usePage(): PageName | undefined {
  const path = usePathname().replace(/(.)\/$/, "$1");
  const found = Object.entries(PAGES).find(([, at]) => at === path);
  return found?.[0] as PageName | undefined;
}

/** Goes to an address of this app. */
export function navigate(href: string, options: NavigateOptions = {}): void {
  const url = new URL(href, window.location.href);
  if (url.href !== window.location.href) go(url.pathname + url.search + url.hash, options);
}

function setAll(search: URLSearchParams, params: Params): void {
  for (const [name, value] of Object.entries(params)) {
    if (value === undefined || value === "") search.delete(name);
    else search.set(name, String(value));
  }
}

/** Changes parameters of the query string and leaves the others. */
export function setParams(params: Params, options: NavigateOptions = {}): void {
  const url = new URL(window.location.href);
  setAll(url.searchParams, params);
  navigate(url.href, options);
}

/** One parameter of the query string, and its setter. */
export function useParam(
  name: string,
): [string | undefined, (value: string | undefined, options?: NavigateOptions) => void] {
  const search = useSearch();
  const set = useCallback(
    (value: string | undefined, options?: NavigateOptions) => setParams({ [name]: value }, options),
    [name],
  );
  return [new URLSearchParams(search).get(name) ?? undefined, set];
}

/** The address of a page with parameters. */
export function hrefTo(page: PageName, params: Params = {}): string {
  const search = new URLSearchParams();
  setAll(search, params);
  return search.size === 0 ? PAGES[page] : `${PAGES[page]}?${search}`;
}

/** Addresses of everything that can be shown: the one place that knows the parameters of each page. */
export const links = {
  topic: (topic: string) => hrefTo("sync", { topic }),
  document: (topic: string, key: string) => hrefTo("sync", { topic, doc: key }),
  parity: () => hrefTo("sync", { tab: "parity" }),
  conversation: (convId: string) => hrefTo("conversations", { conv: convId }),
  artifact: (id: string) => hrefTo("blackboard", { artifact: id }),
  agent: (name: string) => hrefTo("blackboard", { agent: name }),
  correlation: (id: string) => hrefTo("blackboard", { correlation: id }),
  deadLetters: (agent?: string) => hrefTo("blackboard", { tab: "dead", agent }),
  deadLetter: (agent: string, id: string) => hrefTo("blackboard", { tab: "dead", agent, letter: id }),
  lag: () => hrefTo("blackboard", { tab: "lag" }),
  failedRuns: () => hrefTo("operations", { tab: "runs" }),
  failedRun: (errorId: string) => hrefTo("operations", { tab: "runs", item: errorId }),
  traces: () => hrefTo("operations", { tab: "traces" }),
  tracesOf: (correlation: string) => hrefTo("operations", { tab: "traces", correlation }),
  trace: (traceId: string) => hrefTo("operations", { tab: "traces", trace: traceId }),
  sockets: () => hrefTo("operations", { tab: "sockets" }),
  closes: (filter?: string) => hrefTo("operations", { tab: "closes", q: filter }),
  approvals: () => hrefTo("blackboard", { tab: "approvals" }),
  quotas: () => hrefTo("operations", { tab: "quotas" }),
  errors: () => hrefTo("operations", { tab: "errors" }),
  error: (code: string) => hrefTo("operations", { tab: "errors", item: code }),
  /** A page of the documentation, such as "protocol/ERRORS.md". */
  docs: (page: string) => hrefTo("docs", { page }),
  config: () => hrefTo("operations", { tab: "config" }),
} as const;

/** Handles clicks on ordinary links to a page without a reload. Modified clicks are left to the browser. */
export function followLinks(): () => void {
  const onClick = (event: MouseEvent) => {
    if (event.defaultPrevented || event.button !== 0) return;
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const anchor = event.target instanceof Element ? event.target.closest("a[href]") : null;
    if (!(anchor instanceof HTMLAnchorElement) || anchor.target !== "" || anchor.hasAttribute("download"))
      return;
    const url = new URL(anchor.href);
    const isPage = Object.values(PAGES).some((path) => path === url.pathname);
    if (url.origin !== window.location.origin || !isPage || url.hash !== "") return;
    event.preventDefault();
    navigate(url.href);
  };
  document.addEventListener("click", onClick);
  return () => document.removeEventListener("click", onClick);
}
