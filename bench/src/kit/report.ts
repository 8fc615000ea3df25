import type { Spread } from "./stats.ts";

/** A table of results. */
export interface Table {
  readonly head: readonly string[];
  readonly rows: readonly (readonly string[])[];
}

/** What was promised, and what came out. */
export interface Bar {
  readonly name: string;
  readonly got: number;
  /** The bar is met at or above `least`, or at or below `most`. */
  readonly least?: number;
  readonly most?: number;
}

/** One part of a benchmark, measured. */
export interface Part {
  readonly title: string;
  /** How it was measured: a line each. */
  readonly how: readonly string[];
  readonly tables: readonly Table[];
  readonly bars: readonly Bar[];
  /** Cores that were busy with something else meanwhile; absent when nothing was measured. */
  readonly otherLoad?: number;
  /** The share of the CPU that others on the host took, at most, in the windows that count. */
  readonly stolen?: number;
}

/** A part as Markdown. */
export function partText(part: Part): string {
  const lines = [`## ${part.title}`, "", ...part.how.map((line) => `- ${line}`)];
  if (part.otherLoad !== undefined)
    lines.push(`- other load on the machine meanwhile: ${part.otherLoad.toFixed(2)} cores`);
  if (part.stolen !== undefined)
    lines.push(
      `- others on the same host took at most ${(part.stolen * 100).toFixed(0)} % of the CPU in the windows that count; with more than 5 %, others were measured too, up to four times as many, for a minute at most (four where systems take turns), and those count that had the most of it`,
    );
  lines.push("");
  for (const table of part.tables) lines.push(tableText(table), "");
  for (const bar of part.bars) lines.push(barText(bar));
  return `${lines.join("\n")}\n`;
}

function tableText({ head, rows }: Table): string {
  const widths = head.map((title, i) => Math.max(title.length, ...rows.map((row) => row[i]?.length ?? 0)));
  const line = (cells: readonly string[]) =>
    `| ${widths.map((width, i) => (cells[i] ?? "").padEnd(width)).join(" | ")} |`;
  return [line(head), `|${widths.map((width) => "-".repeat(width + 2)).join("|")}|`, ...rows.map(line)].join(
    "\n",
  );
}

function barText({ name, got, least, most }: Bar): string {
  const met = (least === undefined || got >= least) && (most === undefined || got <= most);
  const bar = least === undefined ? `at most ${figure(most!)}` : `at least ${figure(least)}`;
  return `- ${met ? "✓" : "✗ MISSED"} ${name}: **${figure(got)}** (bar: ${bar})`;
}

/** A number with as many digits as it deserves. */
export function figure(value: number): string {
  if (!Number.isFinite(value)) return "–";
  const digits = Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2;
  return value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

/** The median with its spread: `1,234 [1,100–1,300]`. */
export function range({ median, min, max }: Spread): string {
  return `${figure(median)} [${figure(min)}–${figure(max)}]`;
}
