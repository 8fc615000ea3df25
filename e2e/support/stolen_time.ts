import { readFileSync } from "node:fs";

/** Processor time since the machine started: what its programs wanted, and how much of that its host gave to others. */
export interface Ticks {
  readonly wanted: number;
  readonly stolen: number;
}

/** Remembers, sample by sample, how much of the processors a virtual machine was refused by its host. */
export class StolenTime {
  readonly #read: () => Ticks;
  readonly #samples: { readonly at: number; readonly ticks: Ticks }[] = [];

  constructor(read: () => Ticks = readTicks) {
    this.#read = read;
  }

  /** To be called every second or so; the samples of some hours are a few thousand. */
  sample(at: number): void {
    this.#samples.push({ at, ticks: this.#read() });
  }

  /** The part of what was wanted between two times that the host did not give, from 0 to 1. */
  share(from: number, to: number): number {
    const first = this.#samples.findLast(({ at }) => at <= from) ?? this.#samples[0];
    const last = this.#samples.find(({ at }) => at >= to) ?? this.#samples.at(-1);
    if (!first || !last) return 0;
    const wanted = last.ticks.wanted - first.ticks.wanted;
    return wanted > 0 ? (last.ticks.stolen - first.ticks.stolen) / wanted : 0;
  }
}

/** Only Linux tells; elsewhere nothing counts as stolen. */
function readTicks(): Ticks {
  let line: string;
  try {
    line = readFileSync("/proc/stat", "utf8").split("\n", 1)[0]!;
  } catch {
    return { wanted: 0, stolen: 0 };
  }
  return parseTicks(line);
}

/** Reads the line that sums all processors in `/proc/stat`. */
export function parseTicks(line: string): Ticks {
  const [user = 0, nice = 0, system = 0, , , irq = 0, softirq = 0, stolen = 0] = line
    .trim()
    .split(/\s+/)
    .slice(1)
    .map(Number);
  return { wanted: user + nice + system + irq + softirq + stolen, stolen };
}
