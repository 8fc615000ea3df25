import { readdirSync, readFileSync } from "node:fs";

/** Clock ticks per second in /proc on every Linux that Node runs on. */
const TICKS = 100;

/** CPU seconds that a process has used, its threads included. */
export function cpuSeconds(pid: number): number {
  const { utime, stime } = stat(pid);
  return (utime + stime) / TICKS;
}

/** CPU seconds that a process and its children have used, those included that have ended. */
export function treeCpuSeconds(pid: number): number {
  return treeTicks(pid) / TICKS;
}

/** Resident memory of a process in bytes. */
export function residentBytes(pid: number): number {
  const [, kilobytes] = /VmRSS:\s+(\d+) kB/.exec(readFileSync(`/proc/${pid}/status`, "utf8")) ?? [];
  return Number(kilobytes) * 1_024;
}

/** Whether a process has ended, though nobody may have asked for its exit code yet. */
export function hasEnded(pid: number): boolean {
  try {
    return stat(pid).state === "Z";
  } catch {
    return true;
  }
}

/** Measures how many cores were busy with something other than this benchmark since it was called. */
export function watchOtherLoad(): () => number {
  const start = { at: performance.now(), busy: busyTicks(), own: treeTicks(process.pid) };
  return () => {
    const seconds = (performance.now() - start.at) / 1_000;
    const other = busyTicks() - start.busy - (treeTicks(process.pid) - start.own);
    return Math.max(0, other / TICKS / seconds);
  };
}

/** Measures the share of the CPU that the host gave to others since it was called, though something here was ready to run. */
export function watchStolen(): () => number {
  const start = cpuTicks();
  return () => {
    const now = cpuTicks();
    return (now.stolen - start.stolen) / Math.max(1, now.all - start.all);
  };
}

interface Stat {
  readonly state: string;
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
  return { state: fields[0]!, parent: at(4), utime: at(14), stime: at(15), ended: at(16) + at(17) };
}

function busyTicks(): number {
  return cpuTicks().busy;
}

function cpuTicks(): { busy: number; stolen: number; all: number } {
  const [user, nice, system, idle, waiting, irq, softirq, stolen] = readFileSync("/proc/stat", "utf8")
    .split("\n")[0]!
    .split(/\s+/)
    .slice(1)
    .map(Number);
  const busy = user! + nice! + system! + irq! + softirq!;
  return { busy, stolen: stolen!, all: busy + idle! + waiting! + stolen! };
}

/** What a process and its descendants have used. */
function treeTicks(root: number): number {
  const all = new Map<number, Stat>();
  for (const name of readdirSync("/proc")) {
    if (!/^\d+$/.test(name)) continue;
    try {
      all.set(Number(name), stat(name));
    } catch {
      // It ended between the listing and the reading.
    }
  }
  const within = (pid: number): boolean => {
    for (let at: number | undefined = pid; at; at = all.get(at)?.parent) if (at === root) return true;
    return false;
  };
  let ticks = 0;
  for (const [pid, { utime, stime, ended }] of all) if (within(pid)) ticks += utime + stime + ended;
  return ticks;
}
