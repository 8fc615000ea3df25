/** Where the connection is. `waiting` is between two attempts: people see `connecting`, and when the next one is due. */
export type State =
  | "idle"
  | "connecting"
  | "waiting"
  | "replaying"
  | "live"
  | "stale"
  | "offline"
  | "paused"
  | "unauthorised"
  | "closed";

/** What can happen to it. */
export type Event =
  /** Somebody wants it open. */
  | "connect"
  /** Somebody wants it shut until `connect`. */
  | "pause"
  /** Somebody is done with it. */
  | "close"
  /** The platform says that there is a network again. */
  | "online"
  /** The platform says that there is none. */
  | "offline"
  /** The page is looked at again. */
  | "visible"
  /** The wait is over. */
  | "due"
  /** The server has taken the socket. */
  | "opened"
  /** Every followed topic is live. */
  | "caught_up"
  /** A topic is being replayed. */
  | "behind"
  /** A topic's position cannot be continued: it is listed anew. */
  | "stale"
  /** The socket is gone, or there is none to be had; another attempt may succeed. */
  | "lost"
  /** The token is not accepted. */
  | "refused"
  /** The server will not have us, whatever the token; or it was refused too often. */
  | "denied";

/** What is to be done on the way. */
export type Effect =
  /** Gets a token and opens a socket. */
  | "open"
  /** Closes the socket. */
  | "drop"
  /** Lets `due` come after a backoff. */
  | "wait"
  /** Makes the next token a new one. */
  | "renew"
  /** Asks the server whether the line still carries. */
  | "probe";

/** Where an event leads, and what is done. */
export type Step = readonly [to: State, ...effects: Effect[]];

/** What the same event does in every state in which the table says nothing else. */
type Row = Readonly<Record<Event, Step>>;

const stays = (state: State): Row => ({
  connect: [state],
  pause: ["paused", "drop"],
  close: ["closed", "drop"],
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

/** While there is a socket, or one is being opened. */
const open = (state: State): Row => ({
  ...stays(state),
  offline: ["offline", "drop", "wait"],
  lost: ["waiting", "drop", "wait"],
  refused: ["waiting", "drop", "renew", "wait"],
  denied: ["unauthorised", "drop"],
});

/** While the socket is open: what topics say decides. */
const carrying = (state: State): Row => ({
  ...open(state),
  online: [state, "probe"],
  visible: [state, "probe"],
  caught_up: ["live"],
  behind: ["replaying"],
  stale: ["stale"],
});

/** The connection's whole behaviour. Everything that is not in here happens in the topics. */
export const TABLE: Readonly<Record<State, Row>> = {
  idle: { ...stays("idle"), connect: ["connecting", "open"] },
  connecting: { ...open("connecting"), opened: ["replaying"] },
  waiting: {
    ...stays("waiting"),
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
  // The platform may be wrong, or the server on this machine: now and then it is tried all the same.
  offline: {
    ...stays("offline"),
    connect: ["connecting", "open"],
    online: ["connecting", "open"],
    due: ["connecting", "open"],
  },
  paused: { ...stays("paused"), pause: ["paused"], connect: ["connecting", "open"] },
  unauthorised: { ...stays("unauthorised"), connect: ["connecting", "renew", "open"] },
  closed: { ...stays("closed"), pause: ["closed"], close: ["closed"] },
};

/** The machine between two events. */
export interface Machine {
  readonly state: State;
  /** Attempts since it was live for a while. */
  readonly attempt: number;
  /** Refused tokens in a row. */
  readonly refusals: number;
}

/** Before anything happened. */
export const START: Machine = { state: "idle", attempt: 0, refusals: 0 };

/** As many refusals in a row as are taken before it parks. */
const MAX_REFUSALS = 2;

const FRESH: ReadonlySet<State> = new Set<State>(["idle", "paused", "unauthorised"]);

/** What an event makes of the machine. Pure. */
export function next(machine: Machine, event: Event): { machine: Machine; effects: readonly Effect[] } {
  const refusals = event === "refused" ? machine.refusals + 1 : machine.refusals;
  const parks = event === "refused" && refusals >= MAX_REFUSALS;
  const [state, ...effects] = TABLE[machine.state][parks ? "denied" : event];
  // Whoever was parked or paused begins anew when asked to; so does what was live.
  const anew = state === "live" || (event === "connect" && FRESH.has(machine.state));
  return {
    machine: {
      state,
      attempt: event === "connect" && anew ? 0 : machine.attempt + (effects.includes("wait") ? 1 : 0),
      refusals: anew ? 0 : refusals,
    },
    effects,
  };
}

/** Forgets the attempts: it has been live for a while. */
export function steady(machine: Machine): Machine {
  return { ...machine, attempt: 0 };
}
