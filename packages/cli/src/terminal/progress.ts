const ON_TERMINAL_MS = 100;
const IN_LOGS_MS = 1_000;
const CELLS = 24;

/** Where progress is shown: a stream that may be a terminal. */
export interface ProgressOutput {
  readonly isTTY?: boolean;
  readonly columns?: number;
  write(text: string): unknown;
}

/** Tells a person how far a long work is: one line that changes on a terminal, a line a second elsewhere. */
export interface Progress extends Disposable {
  /** `share` is how much is done, from 0 to 1, where that is known; then there is a bar. */
  update(text: () => string, share?: number): void;
}

/** Shows progress beside the output, until it is disposed of. */
export function showProgress(
  output: ProgressOutput = process.stderr,
  now: () => number = () => performance.now(),
): Progress {
  const everyMs = output.isTTY ? ON_TERMINAL_MS : IN_LOGS_MS;
  let last = now();
  let shown = false;
  return {
    update(text, share) {
      if (now() - last < everyMs) return;
      last = now();
      if (!output.isTTY) return void output.write(`${text()}\n`);
      const line = share === undefined ? text() : `${bar(share)} ${text()}`;
      const width = (output.columns ?? 80) - 1;
      output.write(`\r\u001b[K${line.length > width ? `${line.slice(0, width - 1)}…` : line}`);
      shown = true;
    },
    [Symbol.dispose]() {
      if (shown) output.write("\r\u001b[K");
    },
  };
}

function bar(share: number): string {
  const full = Math.round(Math.min(1, Math.max(0, share)) * CELLS);
  const percent = Math.floor(Math.min(1, Math.max(0, share)) * 100);
  return `${"█".repeat(full)}${"░".repeat(CELLS - full)} ${String(percent).padStart(3)} %`;
}
