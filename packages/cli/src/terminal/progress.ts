const ON_TERMINAL_MS = 100;
const IN_LOGS_MS = 1_000;
const CELLS = 24;

/** The output of progress: a stream that may be a terminal. */
export interface ProgressOutput {
  readonly isTTY?: boolean;
  readonly columns?: number;
  write(text: string): unknown;
}

/** Progress of a long operation: one line that changes on a terminal, one line per second elsewhere. */
export interface Progress extends Disposable {
  /** `share` is the fraction done, from 0 to 1; with it there is a bar. */
  update(text: () => string, share?: number): void;
}

/** Prints progress to stderr until it is disposed of. */
export function showProgress(
  output: ProgressOutput = process.stderr,
  now: () => number = () => performance.now(),
): Progress {
  const everyMs = output.isTTY ? ON_TERMINAL_MS : IN_LOGS_MS;
  let last = now();
  let printed = false;
  return {
    update(text, share) {
      if (now() - last < everyMs) return;
      last = now();
      if (!output.isTTY) return void output.write(`${text()}\n`);
      const line = share === undefined ? text() : `${bar(share)} ${text()}`;
      const width = (output.columns ?? 80) - 1;
      output.write(`\r\u001b[K${line.length > width ? `${line.slice(0, width - 1)}…` : line}`);
      printed = true;
    },
    [Symbol.dispose]() {
      if (printed) output.write("\r\u001b[K");
    },
  };
}

function bar(share: number): string {
  const full = Math.round(Math.min(1, Math.max(0, share)) * CELLS);
  const percent = Math.floor(Math.min(1, Math.max(0, share)) * 100);
  return `${"█".repeat(full)}${"░".repeat(CELLS - full)} ${String(percent).padStart(3)} %`;
}
