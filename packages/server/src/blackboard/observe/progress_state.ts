/** Something of an org that is reported on. */
export interface Subject {
  readonly key: string;
  readonly org: string;
  readonly name: string;
}

interface Memory {
  readonly subject: Subject;
  /** What was reported last, as JSON. */
  last?: string;
  /** When to look again although nothing was heard, and how long after that. */
  againAt?: number;
  delay: number;
}

const FIRST_DELAY_MS = 1_000;
const LONGEST_DELAY_MS = 60_000;

/** The key of something of an org. */
export function subjectKey(org: string, name: string): string {
  return `${org.length}:${org}:${name}`;
}

/** How many may wait to be looked at, for each that is remembered. */
const MAX_WAITING = 10;

/** What has changed since it was looked at, and what was said of it last. Bounded: what was used least recently goes. */
export class Subjects {
  /** To be looked at. */
  readonly #dirty = new Map<string, Memory>();
  readonly #quiet = new Map<string, Memory>();
  readonly #remember: number;
  /** That which was touched last, as long as it is to be looked at: most times it is touched again. */
  #latest: Memory | undefined;

  constructor(remember: number) {
    this.#remember = remember;
  }

  /** Something about it has changed. */
  touch(org: string, name: string): void {
    const latest = this.#latest?.subject;
    if (latest?.name === name && latest.org === org) return;
    const key = subjectKey(org, name);
    const memory = this.#dirty.get(key) ?? this.#wake({ key, org, name });
    memory.delay = FIRST_DELAY_MS;
    this.#latest = memory;
  }

  /** Something has changed for every org. */
  touchAll(name: string): void {
    for (const { subject } of [...this.#quiet.values()])
      if (subject.name === name) this.touch(subject.org, name);
  }

  /** What is to be looked at now. */
  take(now: number): Subject[] {
    for (const { subject, againAt } of [...this.#quiet.values()])
      if (againAt !== undefined && againAt <= now) this.#wake(subject);
    const taken = [...this.#dirty.values()];
    this.#dirty.clear();
    this.#latest = undefined;
    for (const memory of taken) {
      delete memory.againAt;
      this.#quiet.set(memory.subject.key, memory);
    }
    forgetOldest(this.#quiet, this.#remember);
    return taken.map(({ subject }) => subject);
  }

  /** It could not be looked at. */
  putBack(subjects: readonly Subject[]): void {
    for (const subject of subjects) this.#wake(subject);
  }

  /** Looks at it again later, ever more seldom while nothing is heard of it. */
  again({ key }: Subject, now: number): void {
    const memory = this.#quiet.get(key);
    if (!memory) return;
    memory.againAt = now + memory.delay;
    memory.delay = Math.min(LONGEST_DELAY_MS, memory.delay * 2);
  }

  /** Whether this was not what was said of it last. */
  isNews({ key }: Subject, json: string): boolean {
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
  // An iterator passes over what was deleted: none is made as long as there is nothing to forget.
  if (memories.size <= limit) return;
  for (const key of memories.keys()) {
    memories.delete(key);
    if (memories.size <= limit) return;
  }
}
