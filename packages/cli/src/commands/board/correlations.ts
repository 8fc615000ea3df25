import { SCOPES } from "@khala/contracts";
import type { CorrelationStateJson } from "@khala/contracts/blackboard/v1";
import { callWithScope, type ServerOptions } from "../../client/tokens.ts";
import { columns, print, truncate } from "../../terminal/terminal.ts";

export interface CorrelationOptions extends ServerOptions {
  readonly limit?: number;
}

const TOPIC = "blackboard.correlations";
const DEFAULT_LIMIT = 20;
const PAGE = 1_000;
/** Documents are listed by name: so many are read to find those that changed last. */
const MAX_READ = 10_000;

interface Page {
  readonly documents?: readonly { readonly payload: CorrelationStateJson }[];
  readonly next?: string | null;
}

/** `khala correlations`: those that changed last. */
export async function correlations(options: CorrelationOptions): Promise<void> {
  const read: CorrelationStateJson[] = [];
  let after: string | null | undefined;
  do {
    const query = new URLSearchParams({ limit: String(PAGE), ...(after && { after }) });
    const path = `/sync/v1/list/${TOPIC}?${query}`;
    const { documents = [], next } = await callWithScope<Page>(options, TOPIC, path);
    read.push(...documents.map(({ payload }) => payload));
    after = next;
  } while (after && read.length < MAX_READ);
  const newest = read
    .sort((a, b) => (b.updated_at ?? "").localeCompare(a.updated_at ?? ""))
    .slice(0, options.limit ?? DEFAULT_LIMIT);
  if (options.json) return newest.forEach((correlation) => void print(JSON.stringify(correlation)));
  if (newest.length === 0) return print("No correlations.");
  for (const line of table(newest).split("\n")) print(truncate(line));
}

/** `khala correlations show`: how far one has come, and what it waits for. */
export async function showCorrelation(id: string, options: ServerOptions): Promise<void> {
  const found = await callWithScope<CorrelationStateJson>(options, SCOPES.blackboardRead, pathOf(id));
  print(options.json ? JSON.stringify(found) : table([found]));
}

const CONTROLS = {
  pause: { state: "paused", text: "is paused: its tasks wait until it is resumed" },
  cancel: { state: "cancelled", text: "is cancelled: running tasks stop, open ones become dead letters" },
} as const;

/** `khala correlations pause` and `khala correlations cancel`. */
export async function controlCorrelation(
  what: keyof typeof CONTROLS,
  id: string,
  options: ServerOptions,
): Promise<void> {
  await callWithScope<null>(options, CONTROL_SCOPES, `${pathOf(id)}/${what}`, {});
  const { state, text } = CONTROLS[what];
  print(options.json ? JSON.stringify({ correlation_id: id, state }) : `${id} ${text}.`);
}

/** `khala correlations resume`: lifts a pause or a cancellation. */
export async function resumeCorrelation(id: string, options: ServerOptions): Promise<void> {
  const path = `${pathOf(id)}/resume`;
  const { replayed = 0 } = await callWithScope<{ replayed?: number }>(options, CONTROL_SCOPES, path, {});
  if (options.json) return print(JSON.stringify({ correlation_id: id, replayed }));
  print(`${id} is resumed${replayed > 0 ? `, and ${replayed} dead letters are replayed` : ""}.`);
}

/** `ops` for those that somebody else has begun. */
const CONTROL_SCOPES = [SCOPES.blackboardWrite, SCOPES.ops];

function pathOf(id: string): string {
  return `/blackboard/v1/correlations/${encodeURIComponent(id)}`;
}

function table(found: readonly CorrelationStateJson[]): string {
  const rows = found.map(({ correlation_id = "", status = "", updated_at = "", waits, ...counts }) => [
    correlation_id,
    status,
    ...[counts.artifacts, counts.open, counts.done, counts.dead].map((count) => String(count ?? 0)),
    updated_at,
    Object.entries(waits ?? {})
      .map(([name, count]) => `${count} ${name}`)
      .join(", "),
  ]);
  return columns([
    ["CORRELATION", "STATUS", "ARTIFACTS", "OPEN", "DONE", "DEAD", "UPDATED AT", "WAITS FOR"],
    ...rows,
  ]);
}
