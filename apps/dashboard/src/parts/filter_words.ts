/** A filter line that was read: words that must occur, and values that keys must have. */
export interface Filter {
  readonly words: readonly string[];
  readonly keys: Readonly<Record<string, readonly string[]>>;
}

/** Reads `key:value` words; quotes keep blanks together: `title:"plan a trip"`. */
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
 * Whether a thing passes: every word occurs in one of its values, and every key has one of the values that were asked
 * for. A key that the thing does not have lets nothing pass.
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
