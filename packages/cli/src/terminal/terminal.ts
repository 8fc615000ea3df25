import { styleText } from "node:util";

type Style = Parameters<typeof styleText>[0];

/** Colours a text on a terminal; respects NO_COLOR. */
export function paint(style: Style, text: string, stream: NodeJS.WriteStream = process.stdout): string {
  return styleText(style, text, { stream });
}

/** Prints to stdout, which scripts read. */
export function print(text: string): void {
  process.stdout.write(`${text}\n`);
}

/** Prints to stderr: for people, never for scripts. */
export function note(text: string): void {
  process.stderr.write(`${text}\n`);
}

/** Columns of equal width; the last one is left as it is. */
export function columns(rows: readonly (readonly string[])[]): string {
  const widths: number[] = [];
  for (const row of rows) {
    row.forEach((cell, i) => {
      widths[i] = Math.max(widths[i] ?? 0, cell.length);
    });
  }
  return rows
    .map((row) => row.map((cell, i) => (i < row.length - 1 ? cell.padEnd(widths[i]!) : cell)).join("  "))
    .map((line) => line.trimEnd())
    .join("\n");
}

/** A text truncated to the width of the terminal; unchanged where there is none. */
export function truncate(text: string, stream: NodeJS.WriteStream = process.stdout): string {
  const width = stream.isTTY ? stream.columns : undefined;
  return width && text.length > width ? `${text.slice(0, width - 1)}…` : text;
}
