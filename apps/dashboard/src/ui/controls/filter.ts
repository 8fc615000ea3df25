/** A parsed filter: words that must occur, and values that keys must have. */
export interface Filter {
  readonly words: readonly string[];
  readonly keys: Readonly<Record<string, readonly string[]>>;
}

/** Parses words and `key:value` pairs; quotes keep blanks together: `title:"plan a trip"`. */
export function parseFilter(text: string): Filter {
  const words: string[] = [];
  const keys: Record<string, string[]> = {};
  for (const [, key, quoted, plain] of text.matchAll(/(?:([\w.-]+):)?(?:"([^"]*)"?|([^\s"]+))/g)) {
    const value = (quoted ?? plain ?? "").toLowerCase();
    if (key === undefined) {
      words.push(value);
      continue;
    }
    keys[key.toLowerCase()] ??= [];
    keys[key.toLowerCase()]!.push(value);
  }
  return { words, keys };
}

/**
 * Whether an item matches: every word occurs in one of its fields, and every key has one of the wanted values. A key that the
 * item does not have never matches.
 */
export function passes(filter: Filter, fields: Readonly<Record<string, unknown>>): boolean {
  const texts = Object.values(fields).map((value) => String(value ?? "").toLowerCase());
  return (
    filter.words.every((word) => texts.some((text) => text.includes(word))) &&
    Object.entries(filter.keys).every(([key, values]) =>
      values.some((value) =>
        String(fields[key] ?? "")
          .toLowerCase()
          .includes(value),
      ),
    )
  );
}
