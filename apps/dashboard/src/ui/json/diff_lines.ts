/** A line of a diff. */
export interface DiffLine {
  readonly kind: "same" | "added" | "removed";
  readonly text: string;
}

/** Beyond this the table of common lines would block the page. */
const MAX_CELLS = 1_000_000;

/** The lines of a JSON value with sorted keys, so that only changes differ. */
export function jsonLines(value: unknown): string[] {
  if (value === undefined) return [];
  return JSON.stringify(sorted(value), null, 2).split("\n");
}

function sorted(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sorted);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.entries(value)
      .sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0))
      .map(([key, inner]) => [key, sorted(inner)]),
  );
}

/** The shortest diff of two lists of lines; undefined when they are too long to compare. */
export function diffLines(before: readonly string[], after: readonly string[]): DiffLine[] | undefined {
  let head = 0;
  while (head < before.length && head < after.length && bare(before[head]) === bare(after[head])) head++;
  let tail = 0;
  while (
    tail < before.length - head &&
    tail < after.length - head &&
    bare(before[before.length - 1 - tail]) === bare(after[after.length - 1 - tail])
  )
    tail++;
  const old = before.slice(head, before.length - tail);
  const fresh = after.slice(head, after.length - tail);
  if (old.length * fresh.length > MAX_CELLS) return undefined;
  const same = (text: string): DiffLine => ({ kind: "same", text });
  return [
    ...after.slice(0, head).map(same),
    ...middle(old, fresh),
    ...after.slice(after.length - tail).map(same),
  ];
}

/** A comma after the last field is not a change. */
function bare(line: string | undefined): string | undefined {
  return line?.endsWith(",") ? line.slice(0, -1) : line;
}

function middle(old: readonly string[], fresh: readonly string[]): DiffLine[] {
  const width = fresh.length + 1;
  const common = new Uint32Array((old.length + 1) * width);
  for (let i = old.length - 1; i >= 0; i--)
    for (let j = fresh.length - 1; j >= 0; j--)
      common[i * width + j] =
        bare(old[i]) === bare(fresh[j])
          ? common[(i + 1) * width + j + 1]! + 1
          : Math.max(common[(i + 1) * width + j]!, common[i * width + j + 1]!);
  const lines: DiffLine[] = [];
  let i = 0;
  let j = 0;
  while (i < old.length || j < fresh.length) {
    if (i < old.length && j < fresh.length && bare(old[i]) === bare(fresh[j])) {
      lines.push({ kind: "same", text: fresh[j]! });
      i++;
      j++;
    } else if (
      j >= fresh.length ||
      (i < old.length && common[(i + 1) * width + j]! >= common[i * width + j + 1]!)
    )
      lines.push({ kind: "removed", text: old[i++]! });
    else lines.push({ kind: "added", text: fresh[j++]! });
  }
  return lines;
}
