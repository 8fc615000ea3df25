import { SETTING_NAMES } from "./config.ts";

/** Names of the environment that begin with KHALA_ and are no setting, each with the nearest one, if it is near. */
export function findUnknownSettings(
  environment: Readonly<Record<string, string | undefined>> = process.env,
  others: readonly string[] = [],
): { readonly name: string; readonly nearest?: string }[] {
  const known = [...SETTING_NAMES, ...others];
  return Object.keys(environment)
    .filter((name) => name.startsWith("KHALA_") && !name.startsWith("KHALA_TEST_") && !known.includes(name))
    .sort()
    .map((name) => {
      const [nearest] = known
        .map((other) => ({ other, edits: editsBetween(name, other) }))
        .filter(({ edits }) => edits <= MAX_EDITS)
        .sort((a, b) => a.edits - b.edits);
      return nearest ? { name, nearest: nearest.other } : { name };
    });
}

/** More edits than this are another word, not a misspelling. */
const MAX_EDITS = 3;

/** The edit distance of two texts: characters added, removed or replaced, or neighbours swapped. */
function editsBetween(from: string, to: string): number {
  let [twoBack, before]: [number[], number[]] = [[], Array.from({ length: to.length + 1 }, (_, i) => i)];
  for (let i = 1; i <= from.length; i++) {
    const row = [i];
    for (let j = 1; j <= to.length; j++) {
      const same = from[i - 1] === to[j - 1];
      row[j] = Math.min(before[j]! + 1, row[j - 1]! + 1, before[j - 1]! + (same ? 0 : 1));
      if (i > 1 && j > 1 && from[i - 1] === to[j - 2] && from[i - 2] === to[j - 1])
        row[j] = Math.min(row[j]!, twoBack[j - 2]! + 1);
    }
    [twoBack, before] = [before, row];
  }
  return before[to.length]!;
}
