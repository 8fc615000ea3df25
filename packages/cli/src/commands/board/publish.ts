import { readFile } from "node:fs/promises";
import { text } from "node:stream/consumers";
import { inexactInteger, inexactIntegerError, SCOPES } from "@khala/contracts";
import { ServerRefusal } from "../../client/call_server.ts";
import { callWithScope, type ServerOptions } from "../../client/tokens.ts";
import { EXIT, Failure } from "../../failure.ts";
import { note, print } from "../../terminal/terminal.ts";
import { listAgents } from "./board.ts";

export interface PublishOptions extends ServerOptions {
  readonly payload: string;
  readonly id?: string;
  readonly key?: string;
  readonly correlation?: string;
  readonly tag?: readonly string[];
  readonly at?: string;
}

interface Answer {
  readonly artifacts: readonly [{ readonly id: string; readonly status: string }];
}

/** `khala publish`: publishes one artifact on the blackboard of a running server. */
export async function publish(type: string, options: PublishOptions): Promise<void> {
  const draft = {
    type,
    payload: await readPayload(options.payload),
    ...(options.id !== undefined && { id: options.id }),
    ...(options.key !== undefined && { partition_key: options.key }),
    ...(options.correlation !== undefined && { correlation_id: options.correlation }),
    ...(options.tag && { tags: options.tag }),
    ...(options.at !== undefined && { not_before: readTime(options.at) }),
  };
  const path = "/blackboard/v1/artifacts";
  const answer = await callWithScope<Answer>(options, SCOPES.blackboardWrite, path, draft);
  const [published] = answer.artifacts;
  if (options.json) return print(JSON.stringify(published));
  print(`${type} ${published.id} is ${said(published.status)}.`);
  await noteWithoutConsumer(type, options);
}

/** A misspelt type is published like any other, and no agent ever takes it. */
async function noteWithoutConsumer(type: string, options: ServerOptions): Promise<void> {
  const agents = await listAgents(options).catch((error) => {
    if (error instanceof ServerRefusal) return undefined; // The token may not read the agents.
    throw error;
  });
  const consumed = [...new Set(agents?.flatMap(({ consumes = [] }) => consumes))].sort();
  if (!agents || consumed.includes(type)) return;
  const others = consumed.length ? ` Agents consume ${consumed.join(", ")}.` : " The app has no agents.";
  note(`No agent consumes ${type}.${others}`);
}

function said(status: string): string {
  return status === "duplicate" ? "there already" : status;
}

function readTime(text: string): string {
  const time = Date.parse(text);
  if (!Number.isNaN(time)) return new Date(time).toISOString();
  throw new Failure(`"${text}" is not a time. Use a form such as 2026-12-24T18:00:00Z.`, EXIT.usage);
}

/** Reads the JSON of an option: the option itself, `@file`, or `-` for stdin. */
export async function readPayload(given: string): Promise<unknown> {
  const source = given === "-" ? "the input" : given.startsWith("@") ? given.slice(1) : "the payload";
  const json =
    given === "-"
      ? await text(process.stdin)
      : given.startsWith("@")
        ? await readFile(given.slice(1), "utf8").catch((cause) => {
            const advice = "A payload that starts with @ names a file.";
            throw new Failure(`${source} cannot be read: ${cause.message}. ${advice}`, EXIT.usage, { cause });
          })
        : given;
  return parseJson(json, source, 'Quote it for the shell, such as \'{"text":"Hi"}\', or name a file with @.');
}

/** Parses the JSON of `source`. Refuses integers that would be rounded before the server sees them. */
export function parseJson(json: string, source: string, advice: string): unknown {
  let value: unknown;
  try {
    value = JSON.parse(json);
  } catch (cause) {
    throw new Failure(`${source} is not valid JSON: ${(cause as Error).message}. ${advice}`, EXIT.usage, {
      cause,
    });
  }
  const rounded = inexactInteger(json);
  if (rounded === undefined) return value;
  throw new Failure(`${source} cannot be sent: ${inexactIntegerError(rounded).message}`, EXIT.usage);
}
