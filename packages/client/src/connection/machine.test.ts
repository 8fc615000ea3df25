import { expect, test } from "vitest";
import { type Effect, type Event, type Machine, next, START, type State, TABLE } from "./machine.ts";

const STATES = Object.keys(TABLE) as State[];
const EVENTS = Object.keys(TABLE.idle) as Event[];

/** The machine after events, from the start. */
function after(...events: Event[]): Machine {
  return events.reduce((machine, event) => next(machine, event).machine, START);
}

function effectsOf(machine: Machine, event: Event): readonly Effect[] {
  return next(machine, event).effects;
}

test("handles every event in every state, with a valid next state", () => {
  for (const state of STATES) {
    expect(Object.keys(TABLE[state]).sort()).toEqual([...EVENTS].sort());
    for (const event of EVENTS) expect(STATES).toContain(TABLE[state][event][0]);
  }
});

test("every state can be reached, and left again, except closed", () => {
  const reached = new Set<State>(["idle"]);
  for (const state of reached) for (const event of EVENTS) reached.add(TABLE[state][event][0]);
  expect([...reached].sort()).toEqual([...STATES].sort());
  for (const state of STATES) {
    const leads = EVENTS.map((event) => TABLE[state][event][0]).filter((to) => to !== state);
    if (state === "closed") expect(leads).toEqual([]);
    else expect(leads).not.toEqual([]);
  }
});

test("live can be reached from every state except closed", () => {
  for (const state of STATES.filter((state) => state !== "closed")) {
    const reached = new Set<State>([state]);
    for (const at of reached) for (const event of EVENTS) reached.add(TABLE[at][event][0]);
    expect(reached, state).toContain("live");
  }
});

test("opens a socket on every transition to connecting, and drops it whenever it leaves a socket's states", () => {
  const withSocket = new Set<State>(["connecting", "replaying", "live", "stale"]);
  for (const state of STATES)
    for (const event of EVENTS) {
      const [to, ...effects] = TABLE[state][event];
      const name = `${state} on ${event}`;
      expect(effects.includes("open"), name).toBe(to === "connecting" && state !== "connecting");
      if (withSocket.has(state) && !withSocket.has(to)) expect(effects, name).toContain("drop");
      // Without a timer nothing would end these by itself.
      const entersWait = (to === "waiting" || to === "offline") && state !== to;
      expect(effects.includes("wait"), name).toBe(entersWait);
    }
});

test("pause and close work in every state, and closed is final", () => {
  for (const state of STATES.filter((state) => state !== "closed")) {
    expect(TABLE[state].pause[0]).toBe("paused");
    expect(TABLE[state].close[0]).toBe("closed");
  }
  expect(after("connect", "opened", "caught_up", "pause").state).toBe("paused");
  for (const event of ["lost", "due", "online", "visible", "opened"] as const)
    expect(after("connect", "pause", event).state).toBe("paused");
  expect(after("connect", "pause", "connect").state).toBe("connecting");
});

test("is live when every topic is, and stale when one is", () => {
  expect(after("connect", "opened").state).toBe("replaying");
  expect(after("connect", "opened", "caught_up").state).toBe("live");
  expect(after("connect", "opened", "caught_up", "behind").state).toBe("replaying");
  expect(after("connect", "opened", "caught_up", "stale").state).toBe("stale");
  expect(after("connect", "opened", "stale", "behind", "caught_up").state).toBe("live");
});

test("after two refusals in a row it parks; connect starts again with a new token", () => {
  const once = after("connect", "refused");
  expect(once.state).toBe("waiting");
  expect(effectsOf(after("connect"), "refused")).toContain("renew");
  const twice = after("connect", "refused", "due", "refused");
  expect(twice).toMatchObject({ state: "unauthorised", refusals: 2 });
  for (const event of ["due", "online", "visible", "lost"] as const)
    expect(next(twice, event).machine.state).toBe("unauthorised");
  expect(next(twice, "connect")).toEqual({
    machine: { state: "connecting", attempt: 0, refusals: 0 },
    effects: ["renew", "open"],
  });
});

test("a live connection resets the count of refusals; an explicit connect does not", () => {
  expect(after("connect", "refused", "due", "opened", "caught_up", "refused").state).toBe("waiting");
  expect(after("connect", "refused", "connect", "refused").state).toBe("unauthorised");
});

test("parks at once on an error that no token fixes", () => {
  expect(after("connect", "denied").state).toBe("unauthorised");
  expect(after("connect", "opened", "caught_up", "denied").state).toBe("unauthorised");
});

test("waits for the network, and connects at once when it returns", () => {
  const offline = after("connect", "opened", "caught_up", "offline");
  expect(offline.state).toBe("offline");
  expect(effectsOf(offline, "online")).toEqual(["open"]);
  expect(effectsOf(offline, "due")).toEqual(["open"]);
  expect(effectsOf(after("connect", "lost"), "online")).toEqual(["open"]);
});

test("a page that becomes visible reconnects at once, or probes its connection", () => {
  expect(effectsOf(after("connect", "lost"), "visible")).toEqual(["open"]);
  expect(effectsOf(after("connect", "opened", "caught_up"), "visible")).toEqual(["probe"]);
});

test("counts attempts until the connection was live for a while", () => {
  expect(after("connect", "lost", "due", "lost", "due", "lost").attempt).toBe(3);
  expect(after("connect", "lost", "due", "opened", "caught_up").attempt).toBe(1);
});
