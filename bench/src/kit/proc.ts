import { readdirSync, readFileSync } from "node:fs";

/** Clock ticks per second in /proc on every Linux that Node runs on. */
const TICKS = 100;

/** CPU seconds that a process has used, its threads included. */
export function cpuSeconds(pid: number): number {
  const { utime, stime } = stat(pid);
  return (utime + stime) / TICKS;
}

/** Resident memory of a process in bytes. */
export function residentBytes(pid: number): number {
  const [, kilobytes] = /VmRSS:\s+(\d+) kB/.exec(readFileSync(`/proc/${pid}/status`, "utf8")) ?? [];
  return Number(kilobytes) * 1_024;
}

/** Measures how many cores were busy with something other than this benchmark since it was called. */
export function watchOtherLoad(): () => number {
  const start = { at: performance.now(), busy: busyTicks(), own: ownTicks() };
  return () => {
    const seconds = (performance.now() - start.at) / 1_000;
    const other = busyTicks() - start.busy - (ownTicks() - start.own);
    return Math.max(0, other / TICKS / seconds);
  };
}

interface Stat {
  readonly parent: number;
  readonly utime: number;
  readonly stime: number;
  /** Of children that have ended. */
  readonly ended: number;
}

function stat(pid: number | string): Stat {
  const text = readFileSync(`/proc/${pid}/stat`, "utf8");
  // The second field is the name in parentheses, and may hold anything.
  const fields = text.slice(text.lastIndexOf(")") + 2).split(" ");
  const at = (field: number) => Number(fields[field - 3]);
  return { parent: at(4), utime: at(14), stime: at(15), ended: at(16) + at(17) };
}

function busyTicks(): number {
  const [, user, nice, system, , , irq, softirq] = readFileSync("/proc/stat", "utf8")
    .split("\n")[0]!
    .split(/\s+/);
  return [user, nice, system, irq, softirq].reduce((sum, ticks) => sum + Number(ticks), 0);
}

/** What this process and its descendants have used. */
function ownTicks(): number {
  const all = new Map<number, Stat>();
  for (const name of readdirSync("/proc")) {
    if (!/^\d+$/.test(name)) continue;
    try {
      all.set(Number(name), stat(name));
    } catch {
      // It ended between the listing and the reading.
    }
  }
  let ticks = 0;
  for (const [pid, { utime, stime, ended }] of all) if (isOwn(pid, all)) ticks += utime + stime + ended;
  return ticks;
}

function isOwn(pid: number, all: ReadonlyMap<number, Stat>): boolean {
  for (let at: number | undefined = pid; at; at = all.get(at)?.parent) if (at === process.pid) return true;
  return false;
}
