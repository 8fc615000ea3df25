import type { BroadcastLike, Environment, LocksLike, Signal, SocketLike } from "./environment.ts";

interface Target {
  addEventListener(name: string, listener: () => void): void;
  removeEventListener(name: string, listener: () => void): void;
}

/** Globals that exist on some platforms. */
interface Platform extends Partial<Target> {
  readonly crypto?: { randomUUID?(): string };
  readonly navigator?: { readonly onLine?: boolean; readonly locks?: LocksLike };
  readonly document?: Target & { readonly visibilityState: string };
  readonly location?: { readonly origin?: string };
  readonly scheduler?: { yield?(): Promise<void> };
  readonly setImmediate?: (fire: () => void) => void;
  readonly MessageChannel?: new () => { readonly port1: PortLike; readonly port2: PortLike };
}

/** The part of MessagePort that is used. */
interface PortLike {
  onmessage?: (() => void) | null;
  postMessage(message: unknown): void;
  close(): void;
}

/** The longest delay that platforms accept. */
const MAX_TIMER_MS = 2 ** 31 - 1;

/** The environment of a browser, a worker, Node or React Native: it uses the globals that exist. */
export function browserEnvironment(): Environment {
  const platform: Platform = globalThis as Platform;
  const { navigator, document, location } = platform;
  // Node has locks and channels between threads, but no tabs.
  const hasTabs = location !== undefined && navigator?.locks !== undefined;
  return {
    now: () => Date.now(),
    random: () => Math.random(),
    newId: () => platform.crypto?.randomUUID?.() ?? randomId(),
    timer(ms, fire) {
      const handle = setTimeout(fire, Math.min(Math.max(0, ms), MAX_TIMER_MS));
      return () => clearTimeout(handle);
    },
    yieldControl: () => yieldControl(platform),
    openSocket: (url, protocols) => new WebSocket(url, protocols) as SocketLike,
    fetch: (url, init) => fetch(url, init),
    ...(location?.origin !== undefined && { origin: location.origin }),
    ...(typeof navigator?.onLine === "boolean" && { online: onlineSignal(platform) }),
    ...(document && { visible: visibleSignal(document) }),
    ...(hasTabs && { locks: navigator.locks }),
    ...(hasTabs && { openBroadcast }),
  };
}

/** Avoids timers where possible: in a hidden page they fire once a second or once a minute. */
function yieldControl({ scheduler, setImmediate, MessageChannel }: Platform): Promise<void> {
  if (scheduler?.yield) return scheduler.yield();
  return new Promise((resolve) => {
    if (setImmediate) return setImmediate(resolve);
    if (!MessageChannel) return setTimeout(resolve, 0);
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => {
      port1.close();
      resolve();
    };
    port2.postMessage(0);
  });
}

function openBroadcast(name: string): BroadcastLike {
  const channel = new BroadcastChannel(name);
  const like: BroadcastLike = {
    onmessage: null,
    postMessage: (message) => channel.postMessage(message),
    close: () => channel.close(),
  };
  channel.onmessage = (event) => like.onmessage?.(event);
  return like;
}

function onlineSignal(platform: Platform): Signal {
  return {
    get: () => platform.navigator?.onLine !== false,
    subscribe: (listener) => listen(platform, ["online", "offline"], listener),
  };
}

function visibleSignal(document: Target & { readonly visibilityState: string }): Signal {
  return {
    get: () => document.visibilityState !== "hidden",
    subscribe: (listener) => listen(document, ["visibilitychange"], listener),
  };
}

function listen(target: Partial<Target>, names: readonly string[], listener: () => void): () => void {
  for (const name of names) target.addEventListener?.(name, listener);
  return () => {
    for (const name of names) target.removeEventListener?.(name, listener);
  };
}

/** Pages without HTTPS have no randomUUID. It only has to be unique. */
function randomId(): string {
  const part = () =>
    Math.floor(Math.random() * 2 ** 32)
      .toString(16)
      .padStart(8, "0");
  return `${part()}-${part()}-${part()}-${part()}`;
}
