import { Turns } from "./semaphore.ts";

/**
 * A call of the addon that waits for brokers holds a thread of libuv's pool, which has four and serves the whole
 * process: names are looked up and tokens are verified there too. So many may wait at a time.
 */
const waits = new Turns(3);
/** The client waits without end for the coordinator of a group. */
const endless = new Turns(2);
const STUCK_MS = 4_500;

/** Makes a call that may wait for brokers. */
export function waiting<T>(call: () => Promise<T>): Promise<T> {
  return waits.run(call);
}

/**
 * Makes a call that may wait without end. Who gives up on it is told `late`. One that has begun goes on, and keeps the
 * thread that it has, so that there is one fewer for the rest; one that has not is never made.
 */
export function waitingWithoutEnd<T>(call: () => Promise<T>, late: Promise<never>): Promise<T> {
  let givenUp = false;
  late.catch(() => {
    givenUp = true;
  });
  // What it would be made with may be gone by the time that it has its turn.
  const made = () => (givenUp ? late : call());
  return endless.run(() => Promise.race([waits.run(made), late]));
}

let armed = false;
let nobodyAsks = false;

/**
 * Node waits for its threads when a process exits. One that waits for brokers that are gone would keep it for ever:
 * from now on such a process ends itself.
 */
export function exitWithoutWaiting(): void {
  if (armed) return;
  armed = true;
  process.once("exit", () => {
    if (waits.longest <= (nobodyAsks ? 0 : STUCK_MS)) return;
    // Whoever asked it to stop takes this for an answer; a SIGKILL would look as if memory had run out.
    process.removeAllListeners("SIGTERM");
    process.kill(process.pid, "SIGTERM");
  });
}

/** All that asked brokers has stopped: a call that still waits was given up, however short it has been. */
export function giveUpWaiting(): void {
  nobodyAsks = true;
}
