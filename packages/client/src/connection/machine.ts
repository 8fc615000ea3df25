import type { ConnectionState } from "./port.ts";

/** The connection's internal state. `waiting` is between two attempts; it is shown as `connecting`. */
export type State = ConnectionState | "waiting";

/** Events of the state machine. */
export type Event =
  /** The app asks to connect. */
  | "connect"
  /** The app asks to stay disconnected until `connect`. */
  | "pause"
  /** The client is closed. */
  | "close"
  /** Nothing is followed any more. */
  | "unused"
  /** The platform reports a network. */
  | "online"
  /** The platform reports no network. */
  | "offline"
  /** The page became visible. */
  | "visible"
  /** The backoff is over. */
  | "due"
  /** The WebSocket handshake succeeded. */
  | "opened"
  /** Every followed topic is live. */
  | "caught_up"
  /** A topic is being replayed. */
  | "behind"
  /** A topic's position is stale: it is listed again. */
  | "stale"
  /** The socket closed or could not be opened; a retry may succeed. */
  | "lost"
  /** The token is not accepted. */
  | "refused"
  /** The server refuses the client, or refused its token too often. */
  | "denied";

/** Side effects of a transition. */
export type Effect =
  /** Gets a token and opens a socket. */
  | "open"
  /** Closes the socket. */
  | "drop"
  /** Starts a backoff, then `due`. */
  | "wait"
  /** Discards the token. */
  | "renew"
  /** Sends a heartbeat to check the connection. */
  | "probe";

/** A transition: the next state and its side effects. */
export type Step = readonly [to: State, ...effects: Effect[]];

/** The transitions of one state. */
type Row = Readonly<Record<Event, Step>>;

const stays = (state: State): Row => ({
  connect: [state],
  pause: ["paused", "drop"],
  close: ["closed", "drop"],
  unused: [state],
  online: [state],
  offline: [state],
  visible: [state],
  due: [state],
  opened: [state],
  caught_up: [state],
  behind: [state],
  stale: [state],
  lost: [state],
  refused: [state],
  denied: [state],
});

/** States with a socket, open or opening. */
const open = (state: State): Row => ({
  ...stays(state),
  unused: ["idle", "drop"],
  offline: ["offline", "drop", "wait"],
  lost: ["waiting", "drop", "wait"],
  refused: ["waiting", "drop", "renew", "wait"],
  denied: ["unauthorised", "drop"],
});

/** States with an open socket: the topics decide. */
const carrying = (state: State): Row => ({
  ...open(state),
  online: [state, "probe"],
  visible: [state, "probe"],
  caught_up: ["live"],
  behind: ["replaying"],
  stale: ["stale"],
});

/** The state machine of the connection. */
export const TABLE: Readonly<Record<State, Row>> = {
  idle: { ...stays("idle"), connect: ["connecting", "open"] },
  connecting: { ...open("connecting"), opened: ["replaying"] },
  waiting: {
    ...stays("waiting"),
    unused: ["idle", "drop"],
    connect: ["connecting", "open"],
    online: ["connecting", "open"],
    visible: ["connecting", "open"],
    due: ["connecting", "open"],
    offline: ["offline", "wait"],
    denied: ["unauthorised"],
  },
  replaying: carrying("replaying"),
  live: carrying("live"),
  stale: carrying("stale"),
  // The platform may be wrong, or the server local: retries at intervals.
  offline: {
    ...stays("offline"),
    unused: ["idle", "drop"],
    connect: ["connecting", "open"],
    online: ["connecting", "open"],
    due: ["connecting", "open"],
  },
  paused: { ...stays("paused"), pause: ["paused"], connect: ["connecting", "open"] },
  unauthorised: { ...stays("unauthorised"), connect: ["connecting", "renew", "open"] },
  closed: { ...stays("closed"), pause: ["closed"], close: ["closed"] },
};

/** The machine's data between two events. */
export interface Machine {
  readonly state: State;
  /** Attempts since it was live for a while. */
  readonly attempt: number;
  /** Refused tokens in a row. */
  readonly refusals: number;
}

/** The initial state. */
export const START: Machine = { state: "idle", attempt: 0, refusals: 0 };

/** The number of refused tokens in a row after which it parks. */
const MAX_REFUSALS = 2;

const FRESH: ReadonlySet<State> = new Set<State>(["idle", "paused", "unauthorised"]);

/** The next state and the effects of an event. Pure. */
export function next(machine: Machine, event: Event): { machine: Machine; effects: readonly Effect[] } {
  const refusals = event === "refused" ? machine.refusals + 1 : machine.refusals;
  const parks = event === "refused" && refusals >= MAX_REFUSALS;
  const [state, ...effects] = TABLE[machine.state][parks ? "denied" : event];
  // An explicit connect after a pause or a refusal resets the counters, and so does being live.
  const restarted = state === "live" || state === "idle" || (event === "connect" && FRESH.has(machine.state));
  return {
    machine: {
      state,
      attempt:
        (event === "connect" || state === "idle") && restarted
          ? 0
          : machine.attempt + (effects.includes("wait") ? 1 : 0),
      refusals: restarted ? 0 : refusals,
    },
    effects,
  };
}

/** Resets the attempts after a stable time. */
export function steady(machine: Machine): Machine {
  return { ...machine, attempt: 0 };
}
