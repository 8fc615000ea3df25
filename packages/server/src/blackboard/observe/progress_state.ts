/** A reported subject of an org. */
export interface Subject {
  readonly key: string;
  readonly org: string;
  readonly name: string;
}

interface Memory {
  readonly subject: Subject;
  /** The last report, as JSON. */
  last?: string;
  /** When to check again although nothing changed, and the interval after that. */
  againAt?: number;
  delay: number;
  /** Its last report failed: a change does not bring the next attempt forward. */
  failed?: boolean;
}

const FIRST_DELAY_MS = 1_000;
const LONGEST_DELAY_MS = 60_000;

/** The key of a subject. */
export function subjectKey(org: string, name: string): string {
  return `${org.length}:${org}:${name}`;
}

/** The bound of the due subjects, as a multiple of the remembered ones. */
const MAX_WAITING = 10;

/** Changed subjects and their last reports. Bounded: the least recently used are evicted. */
export class ReportQueue {
  /** ReportQueue that are due. */
  readonly #dirty = new Map<string, Memory>();
  readonly #quiet = new Map<string, Memory>();
  readonly #remember: number;
  /** The last touched subject, as long as it is due: it is usually touched again. */
  #latest: Memory | undefined;

  constructor(remember: number) {
    this.#remember = remember;
  }

  /** Marks a subject as changed. */
  touch(org: string, name: string): void {
    const latest = this.#latest?.subject;
    if (latest?.name === name && latest.org === org) return;
    const key = subjectKey(org, name);
    if (this.#quiet.get(key)?.failed) return;
    const memory = this.#dirty.get(key) ?? this.#wake({ key, org, name });
    memory.delay = FIRST_DELAY_MS;
    this.#latest = memory;
  }

  /** Marks a subject as changed for every org. */
  touchAll(name: string): void {
    for (const { subject } of [...this.#quiet.values()])
      if (subject.name === name) this.touch(subject.org, name);
  }

  /** Takes the due subjects. */
  take(now: number): Subject[] {
    for (const { subject, againAt } of [...this.#quiet.values()])
      if (againAt !== undefined && againAt <= now) this.#wake(subject);
    const taken = [...this.#dirty.values()];
    this.#dirty.clear();
    this.#latest = undefined;
    for (const memory of taken) {
      delete memory.againAt;
      delete memory.failed;
      this.#quiet.set(memory.subject.key, memory);
    }
    forgetOldest(this.#quiet, this.#remember);
    return taken.map(({ subject }) => subject);
  }

  /** Sets a subject aside that could not be reported. It is tried again, less and less often. */
  fail(subject: Subject, now: number): void {
    const memory = this.#quiet.get(subject.key);
    if (!memory) return;
    memory.failed = true;
    this.again(subject, now);
  }

  /** Makes subjects due again whose state could not be read. */
  putBack(subjects: readonly Subject[]): void {
    for (const subject of subjects) this.#wake(subject);
  }

  /** Schedules another check, less and less often while nothing changes. */
  again({ key }: Subject, now: number): void {
    const memory = this.#quiet.get(key);
    if (!memory) return;
    memory.againAt = now + memory.delay;
    memory.delay = Math.min(LONGEST_DELAY_MS, memory.delay * 2);
  }

  /** Whether this differs from the last report. */
  hasChanged({ key }: Subject, json: string): boolean {
    return this.#memory(key)?.last !== json;
  }

  said({ key }: Subject, json: string): void {
    const memory = this.#memory(key);
    if (memory) memory.last = json;
  }

  #memory(key: string): Memory | undefined {
    return this.#dirty.get(key) ?? this.#quiet.get(key);
  }

  #wake(subject: Subject): Memory {
    const memory = this.#memory(subject.key) ?? { subject, delay: FIRST_DELAY_MS };
    this.#quiet.delete(subject.key);
    this.#dirty.set(subject.key, memory);
    forgetOldest(this.#dirty, this.#remember * MAX_WAITING);
    this.#latest = undefined;
    return memory;
  }
}

function forgetOldest(memories: Map<string, Memory>, limit: number): void {
  // Avoids an iterator over deleted entries while there is nothing to evict.
  if (memories.size <= limit) return;
  for (const key of memories.keys()) {
    memories.delete(key);
    if (memories.size <= limit) return;
  }
}
