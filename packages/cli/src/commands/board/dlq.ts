import { SCOPES } from "@khala/contracts";
import type {
  DeadLetterJson,
  DeadLetterListJson,
  ReplayAllResponseJson,
  ReplayResponseJson,
} from "@khala/contracts/blackboard/v1";
import { callServer } from "../../client/call_server.ts";
import { type ServerOptions, tokenSource } from "../../client/tokens.ts";
import { serverUrl } from "../../environment.ts";
import { EXIT, Failure } from "../../failure.ts";
import { type Progress, showProgress } from "../../terminal/progress.ts";
import { columns, print, truncate } from "../../terminal/terminal.ts";
import { listAgents } from "./board.ts";
import { readPayload } from "./publish.ts";

export interface DeadLetterOptions extends ServerOptions {
  readonly limit?: number;
  readonly correlation?: string;
  readonly payload?: string;
}

const PAGE = 100;
const DEFAULT_LIMIT = 20;

/** `khala dlq list`: the dead letters of an agent, newest first. */
export async function listDeadLetters(agent: string, options: DeadLetterOptions): Promise<void> {
  const limit = options.limit ?? DEFAULT_LIMIT;
  const letters: DeadLetterJson[] = [];
  for await (const page of pages(agent, options, Math.min(limit, PAGE))) {
    letters.push(...page);
    if (letters.length >= limit) break;
  }
  const listed = letters.slice(0, limit);
  if (options.json) return listed.forEach((letter) => void print(JSON.stringify(letter)));
  if (listed.length === 0) return print(`${agent} has no dead letters.`);
  const rows = listed.map(({ id = "", failed_at = "", attempts = 0, replay_id, task, failure }) => [
    id,
    failed_at,
    String(attempts),
    replay_id ? "yes" : "no",
    task?.artifacts?.[0]?.type ?? "(undecodable)",
    `${failure?.class}: ${failure?.message}`.replaceAll(/\s+/g, " "),
  ]);
  const table = columns([["ID", "FAILED AT", "ATTEMPTS", "REPLAYED", "TYPE", "ERROR"], ...rows]);
  for (const line of table.split("\n")) print(truncate(line));
}

/** `khala dlq show`: one dead letter in full. */
export async function showDeadLetter(agent: string, id: string, options: DeadLetterOptions): Promise<void> {
  const { call } = await connect(agent, options, SCOPES.blackboardRead);
  const letter = await call<DeadLetterJson>(`/${encodeURIComponent(id)}`);
  if (options.json) return print(JSON.stringify(letter));
  const { failure, task, raw } = letter;
  print(
    columns([
      ["id", letter.id ?? ""],
      ["agent", letter.agent ?? ""],
      ["failed at", `${letter.failed_at}, after ${letter.attempts} attempts`],
      ["read at", letter.origin ?? ""],
      ["replayed", letter.replay_id ?? "no"],
      ["error", `${failure?.class} (${failure?.kind}): ${failure?.message}`],
    ]),
  );
  if (failure?.stack) print(`\n${failure.stack}`);
  print(`\n${task ? JSON.stringify(task.artifacts, null, 2) : `undecodable, base64: ${raw ?? ""}`}`);
}

/** `khala dlq replay`: runs some again; repeating it changes nothing. */
export async function replayDeadLetters(
  agent: string,
  ids: readonly string[],
  options: DeadLetterOptions,
): Promise<void> {
  if (options.payload !== undefined && ids.length > 1)
    throw new Failure("--payload replaces the payload of one dead letter. Pass one id.", EXIT.usage);
  const body = options.payload === undefined ? {} : { payload: await readPayload(options.payload) };
  const { call } = await connect(agent, options, SCOPES.blackboardWrite);
  for (const id of ids) {
    const answer = await call<ReplayResponseJson>(`/${encodeURIComponent(id)}/replay`, body);
    const text = answer.status === "replayed" ? "runs again" : "was already replayed";
    print(options.json ? JSON.stringify({ id, ...answer }) : `${id} ${text}.`);
  }
}

/** `khala dlq replay-all`: runs all of them again, page by page, with progress. */
export async function replayAllDeadLetters(
  agent: string,
  options: DeadLetterOptions,
  show: () => Progress = showProgress,
): Promise<void> {
  const { call } = await connect(agent, options, SCOPES.blackboardWrite);
  const total = { replayed: 0, already_replayed: 0, undecodable: 0 };
  const all = options.correlation === undefined ? await countOf(agent, options) : 0;
  let seen = 0;
  using progress = show();
  for await (const page of pages(agent, options, PAGE)) {
    total.undecodable += page.filter(({ task }) => !task).length;
    const ids = page.flatMap(({ id, task }) => (id && task ? [id] : []));
    if (ids.length === 0) continue;
    const { replayed = 0, already_replayed = 0 } = await call<ReplayAllResponseJson>("/replay", { ids });
    total.replayed += replayed;
    total.already_replayed += already_replayed;
    seen += page.length;
    progress.update(() => `${total.replayed} replayed so far`, all > 0 ? seen / all : undefined);
  }
  if (options.json) return print(JSON.stringify(total));
  const besides = [
    total.already_replayed > 0 && ` ${total.already_replayed} were already replayed.`,
    total.undecodable > 0 && ` ${total.undecodable} cannot be decoded, so they were not replayed.`,
  ];
  print(`${total.replayed} dead letters of ${agent} replayed.${besides.filter(Boolean).join("")}`);
}

/** The number of an agent's dead letters, from the list of agents. */
async function countOf(agent: string, options: DeadLetterOptions): Promise<number> {
  const agents = await listAgents(options);
  return Number(agents.find(({ name }) => name === agent)?.dead ?? 0);
}

/** Pages of dead letters, newest first; letters added during the paging are not included. */
async function* pages(
  agent: string,
  options: DeadLetterOptions,
  limit: number,
): AsyncGenerator<DeadLetterJson[]> {
  const { call } = await connect(agent, options, SCOPES.blackboardRead);
  const { correlation: correlation_id } = options;
  let after: string | undefined;
  do {
    const query = new URLSearchParams({
      limit: String(limit),
      ...(correlation_id !== undefined && { correlation_id }),
      ...(after !== undefined && { after }),
    });
    const { dead_letters = [], next } = await call<DeadLetterListJson>(`?${query}`);
    yield dead_letters;
    after = next;
  } while (after !== undefined);
}

async function connect(agent: string, { url: given, token }: DeadLetterOptions, scope: string) {
  const url = serverUrl(given);
  // Records that the router could not decode may be of any org.
  const tokens = tokenSource(url, token, agent === "router" ? [scope, SCOPES.platform] : [scope]);
  let current = await tokens.get();
  let renewAt = performance.now() + tokens.renewAfterMs(Date.now());
  const path = `/blackboard/v1/dead-letters/${encodeURIComponent(agent)}`;
  return {
    async call<T>(rest: string, body?: unknown): Promise<T> {
      if (performance.now() >= renewAt) {
        current = await tokens.get();
        renewAt = performance.now() + tokens.renewAfterMs(Date.now());
      }
      return callServer<T>(url, path + rest, { token: current, ...(body !== undefined && { body }) });
    },
  };
}
