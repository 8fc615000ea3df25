import { type From, follow, type Update } from "../client/follow.ts";
import { type ServerOptions, tokenSource } from "../client/tokens.ts";
import { serverUrl } from "../environment.ts";
import { note, paint, print, truncate } from "../terminal/terminal.ts";

export interface TailOptions extends ServerOptions {
  readonly from: From;
  readonly count?: number;
  readonly quiet?: boolean;
}

/** `khala tail`: prints every change of a topic's documents until it is stopped. */
export async function tail(topic: string, options: TailOptions): Promise<void> {
  const url = serverUrl(options.url);
  const stopping = new AbortController();
  const stop = () => stopping.abort();
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.once(signal, stop);
  let left = options.count ?? Number.POSITIVE_INFINITY;
  await follow({
    url,
    topic,
    from: options.from,
    tokens: tokenSource(url, options.token, [topic]),
    signal: stopping.signal,
    onUpdate(update) {
      if (left-- <= 0) return;
      print(options.json ? JSON.stringify(update) : line(update));
      if (left <= 0) stop();
    },
    onState(state) {
      if (!options.quiet) note(paint("dim", `# ${state}`, process.stderr));
    },
  });
}

function line({ doc_key, doc_version, op, payload, fetch_required }: Update): string {
  const body = fetch_required
    ? "(too large to push: fetch it)"
    : payload === undefined
      ? ""
      : JSON.stringify(payload);
  const text = truncate(`  ${doc_key} v${doc_version} ${body}`).trimEnd();
  return `${op === "delete" ? paint("red", "-") : paint("green", "+")}${text.slice(1)}`;
}
