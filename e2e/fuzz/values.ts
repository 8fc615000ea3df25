import type { Random } from "../../packages/server/src/kit/ids.ts";

const ODD_TEXTS = [
  "",
  " ",
  "\0",
  "\ud800",
  "\u202e",
  "__proto__",
  "constructor",
  "null",
  "../../etc/passwd",
  "%00",
  "'; DROP TABLE runtime.events; --",
  '{"$ref":"#"}',
  "a".repeat(300),
  "🦜".repeat(50),
  "hello world",
  "co:x",
  "-1",
  "1e999",
  "9223372036854775808",
];
const ODD_NUMBERS = [0, -1, 1, 0.5, 2 ** 31, 2 ** 53, -(2 ** 63), 1e308, Number.NaN];

/** Random inputs that a seed repeats. */
export class Values {
  readonly #random: Random;
  /** Texts that occurred in answers: ids, cursors, page tokens. */
  readonly #seen: string[] = [];

  constructor(random: Random) {
    this.#random = random;
  }

  below(limit: number): number {
    return Math.floor(this.#random() * limit);
  }

  chance(of: number): boolean {
    return this.#random() < of;
  }

  pick<T>(items: readonly T[]): T {
    return items[this.below(items.length)]!;
  }

  /** Remembers what a server answered, to send it back elsewhere and damaged. */
  remember(text: string): void {
    for (const [, found] of text.slice(0, 20_000).matchAll(/"([\w:.=~-]{6,200})"/g)) {
      if (this.#seen.length < 500) this.#seen.push(found!);
      else this.#seen[this.below(500)] = found!;
    }
  }

  text(): string {
    const kind = this.below(6);
    if (kind < 2 && this.#seen.length > 0) return this.damaged(this.pick(this.#seen));
    if (kind < 4) return this.pick(ODD_TEXTS);
    return Array.from({ length: this.below(40) }, () => String.fromCharCode(this.below(0x300))).join("");
  }

  /** The text as it is, or with one place changed. */
  damaged(text: string): string {
    if (this.chance(0.5) || text === "") return text;
    const at = this.below(text.length);
    return (
      text.slice(0, at) + this.pick(["", "A", "\0", "%", "🦜", text.slice(at, at + 3)]) + text.slice(at + 1)
    );
  }

  bytes(most: number): Buffer {
    return Buffer.from(Array.from({ length: this.below(most) }, () => this.below(256)));
  }

  json(depth = 3): unknown {
    const kind = this.below(depth > 0 ? 8 : 5);
    if (kind === 0) return this.pick(ODD_NUMBERS);
    if (kind === 1) return this.chance(0.5);
    if (kind === 2) return null;
    if (kind < 5) return this.text();
    if (kind === 5) return Array.from({ length: this.below(4) }, () => this.json(depth - 1));
    return Object.fromEntries(
      Array.from({ length: this.below(5) }, () => [this.key(), this.json(depth - 1)]),
    );
  }

  /** A valid value with some of its parts replaced, removed or added. */
  mutated(value: unknown): unknown {
    if (this.chance(0.08)) return this.json();
    if (Array.isArray(value)) {
      const copies = this.chance(0.05) ? 300 : 1;
      return Array.from({ length: copies }, () => value.map((each) => this.mutated(each))).flat();
    }
    if (typeof value === "object" && value !== null) {
      const entries = Object.entries(value).filter(() => !this.chance(0.08));
      const changed = entries.map(([key, each]) => [key, this.mutated(each)] as const);
      return Object.fromEntries(this.chance(0.1) ? [...changed, [this.key(), this.json(1)]] : changed);
    }
    return typeof value === "string" ? this.damaged(value) : value;
  }

  key(): string {
    return this.pick([
      "id",
      "type",
      "data",
      "events",
      "message",
      "conv_id",
      "limit",
      "token",
      "x",
      this.text(),
    ]);
  }
}
