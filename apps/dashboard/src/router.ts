import { useCallback, useSyncExternalStore } from "react";

/** The rooms, by their paths. Everything else that a screen shows is in the query string. */
export const ROOMS = {
  home: "/",
  sync: "/sync",
  conversations: "/conversations",
  blackboard: "/blackboard",
  operations: "/operations",
} as const;

/** A room of the dashboard. */
export type RoomName = keyof typeof ROOMS;

/** What is put in the query string: undefined and "" take a parameter out. */
export type Params = Readonly<Record<string, string | number | undefined>>;

const listeners = new Set<() => void>();

function notify(): void {
  for (const listener of listeners) listener();
}

function subscribe(listener: () => void): () => void {
  if (listeners.size === 0) window.addEventListener("popstate", notify);
  listeners.add(listener);
  return () => {
    listeners.delete(listener);
    if (listeners.size === 0) window.removeEventListener("popstate", notify);
  };
}

const currentPath = () => window.location.pathname;
const currentSearch = () => window.location.search;

/** The room of a path; an unknown one is Home. */
function roomOf(path: string): RoomName {
  const found = Object.entries(ROOMS).find(([, at]) => at === path.replace(/(.)\/$/, "$1"));
  return (found?.[0] ?? "home") as RoomName;
}

/** The room that the address bar names. */
export function useRoom(): RoomName {
  return roomOf(useSyncExternalStore(subscribe, currentPath));
}

/** Goes to an address of this page. */
export function navigate(href: string, options: { readonly replace?: boolean } = {}): void {
  const url = new URL(href, window.location.href);
  const target = url.pathname + url.search + url.hash;
  if (target === window.location.pathname + window.location.search + window.location.hash) return;
  window.history[options.replace ? "replaceState" : "pushState"](null, "", target);
  notify();
}

/** Changes parameters of the query string and leaves the others. */
export function setParams(params: Params, options: { readonly replace?: boolean } = {}): void {
  const url = new URL(window.location.href);
  for (const [name, value] of Object.entries(params)) {
    if (value === undefined || value === "") url.searchParams.delete(name);
    else url.searchParams.set(name, String(value));
  }
  navigate(url.href, options);
}

/**
 * One parameter of the query string, and how to change it. `replace` keeps it out of the history: for text that is typed,
 * and for what follows from something else.
 */
export function useParam(
  name: string,
): [string | undefined, (value: string | undefined, options?: { readonly replace?: boolean }) => void] {
  const search = useSyncExternalStore(subscribe, currentSearch);
  const set = useCallback(
    (value: string | undefined, options?: { readonly replace?: boolean }) =>
      setParams({ [name]: value }, options),
    [name],
  );
  return [new URLSearchParams(search).get(name) ?? undefined, set];
}

/** The address of a room with parameters. */
export function hrefTo(room: RoomName, params: Params = {}): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) {
    if (value !== undefined && value !== "") search.set(name, String(value));
  }
  const text = search.toString();
  return text === "" ? ROOMS[room] : `${ROOMS[room]}?${text}`;
}

/** Where things are shown: the one place that knows the parameters of each room. */
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
  trace: (traceId: string) => hrefTo("operations", { tab: "traces", trace: traceId }),
  tracesOf: (correlationId: string) => hrefTo("operations", { tab: "traces", correlation: correlationId }),
  sockets: () => hrefTo("operations", { tab: "sockets" }),
  closes: (filter?: string) => hrefTo("operations", { tab: "closes", q: filter }),
  errors: () => hrefTo("operations", { tab: "errors" }),
  /** What a code means and what to do about it, also for who may not see how often it came. */
  error: (code: string) => hrefTo("operations", { tab: "errors", item: code }),
  config: (filter?: string) => hrefTo("operations", { tab: "config", q: filter }),
} as const;

/** Makes a click on an ordinary link to a room stay on this page. Modified clicks are left to the browser. */
export function followLinks(): () => void {
  const onClick = (event: MouseEvent) => {
    if (event.defaultPrevented || event.button !== 0) return;
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const anchor = event.target instanceof Element ? event.target.closest("a[href]") : null;
    if (!(anchor instanceof HTMLAnchorElement) || anchor.target !== "" || anchor.hasAttribute("download"))
      return;
    const url = new URL(anchor.href);
    const isRoom = Object.values(ROOMS).some((path) => path === url.pathname);
    if (url.origin !== window.location.origin || !isRoom || url.hash !== "") return;
    event.preventDefault();
    navigate(url.href);
  };
  document.addEventListener("click", onClick);
  return () => document.removeEventListener("click", onClick);
}
