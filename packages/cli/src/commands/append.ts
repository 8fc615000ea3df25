import { randomUUID } from "node:crypto";
import { callWithScope, type ServerOptions } from "../client/tokens.ts";
import { dataFolder } from "../environment.ts";
import { EXIT, Failure } from "../failure.ts";
import { findNames } from "../local/app_names.ts";
import { print } from "../terminal/terminal.ts";
import { parseJson } from "./board/publish.ts";

const ADVICE = 'Quote it for the shell, such as \'{"title":"Hi"}\'.';

export interface AppendOptions extends ServerOptions {
  readonly app?: string;
  readonly expectedSeq?: string;
  readonly eventId?: string;
}

/** `khala append`: appends one event to a stream of a running server. */
export async function append(
  kind: string,
  id: string,
  type: string,
  data: string,
  options: AppendOptions,
): Promise<void> {
  const { path, scope } = await streamOf(kind, options.app);
  const event_id = options.eventId ?? randomUUID();
  const body = {
    ...(options.expectedSeq !== undefined && { expected_seq: options.expectedSeq }),
    events: [{ event_id, type, data: parseJson(data, "the data", ADVICE) }],
  };
  const events = `${path}/${encodeURIComponent(id)}/events`;
  const { seq } = await callWithScope<{ seq: string }>(options, scope, events, body);
  print(options.json ? JSON.stringify({ seq, event_id }) : `${kind} ${id} is at sequence ${seq}.`);
}

async function streamOf(kind: string, app: string | undefined): Promise<{ path: string; scope: string }> {
  const { streams } = await findNames(app, dataFolder());
  const stream = streams[kind];
  if (stream) return stream;
  const advice = app ? "" : " Start `khala dev` in this folder first, or name the app with --app.";
  const known = Object.keys(streams).join(", ");
  throw new Failure(`There is no stream kind "${kind}". Known kinds: ${known}.${advice}`, EXIT.usage);
}
