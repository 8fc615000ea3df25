import { fromJson } from "@bufbuild/protobuf";
import { INEXACT_INTEGER, inexactInteger, KhalaError } from "@khala/contracts";
import { type EventJson, EventSchema } from "@khala/contracts/conversation/v1";
import type { StandardSchemaV1 } from "@standard-schema/spec";
import { type Clock, systemClock } from "../../kit/clock.ts";
import type { EngineEvent, EngineFactory, Turn } from "./engine.ts";
import { engineFailureCode, PublicError } from "./public_error.ts";

export interface HttpEngineOptions {
  /** The schema of a message's `params`. The engine gets them unchanged. */
  readonly params?: StandardSchemaV1;
  readonly headers?: Readonly<Record<string, string>>;
  /** Sent as `Authorization: Bearer …`. */
  readonly bearer?: string;
  /** The timeout for the response's status and headers; 10 s by default. */
  readonly connectTimeoutMs?: number;
  /** The longest silence within the response; blank lines count as activity. 60 s by default, at most 290 s. */
  readonly idleTimeoutMs?: number;
  /** The longest line, or event; 1 Mi characters by default. */
  readonly maxLineLength?: number;
  /** Whether the engine continues a turn whose request has `resume`; false by default. */
  readonly resumable?: boolean;
  readonly clock?: Clock;
}

/** Below the 300 s after which `fetch` itself fails with an unhelpful message. */
const MAX_IDLE_MS = 290_000;
const EXCERPT = 200;

/** An engine in another process, over HTTP. docs/guides/other_languages.md is the contract. */
export function http(url: string, options: HttpEngineOptions = {}): EngineFactory {
  const { connectTimeoutMs = 10_000, idleTimeoutMs = 60_000, maxLineLength = 1_048_576 } = options;
  const { clock = systemClock, bearer, resumable = false } = options;
  if (!/^https?:$/.test(new URL(url).protocol))
    throw new TypeError("The engine's URL must start with http:// or https://.");
  if (idleTimeoutMs > MAX_IDLE_MS)
    throw new TypeError(
      `idleTimeoutMs may be at most ${MAX_IDLE_MS}. For longer pauses, let the engine send blank lines.`,
    );
  const headers = {
    ...options.headers,
    "content-type": "application/json",
    accept: "application/x-ndjson, text/event-stream",
    ...(bearer !== undefined && { authorization: `Bearer ${bearer}` }),
  };

  async function* run(turn: Turn, signal: AbortSignal): AsyncGenerator<EngineEvent> {
    const leaving = new AbortController();
    /** Waits for a part of the response; aborts the request after the timeout. */
    const readWithin = async <T>(ms: number, late: string, part: Promise<T>): Promise<T> => {
      const cancel = clock.after(ms, () => leaving.abort(tooLate(late)));
      return part.finally(cancel);
    };
    try {
      const answer = fetch(url, {
        method: "POST",
        headers,
        body: JSON.stringify(requestOf(turn)),
        redirect: "manual",
        signal: AbortSignal.any([signal, leaving.signal]),
      });
      const late = `The engine did not answer within ${connectTimeoutMs} ms.`;
      const response = await readWithin(connectTimeoutMs, late, answer);
      const reader = response.body?.getReader();
      const silent = `The engine sent nothing for ${idleTimeoutMs} ms.`;
      const read: ReadBytes = async () =>
        reader && (await readWithin(idleTimeoutMs, silent, reader.read())).value;
      if (!response.ok) throw await statusError(response.status, read);
      const lines = linesOf(read, maxLineLength);
      const pieces = isSse(response) ? sseOf(lines, maxLineLength) : ndjsonOf(lines);
      yield* eventsOf(pieces, isFramed(response));
    } catch (error) {
      if (signal.aborted) return;
      throw leaving.signal.aborted ? leaving.signal.reason : connectionError(error);
    } finally {
      leaving.abort();
    }
  }

  return Object.assign(() => ({ run, resumable }), options.params && { params: options.params });
}

function requestOf({
  convId,
  runId,
  messageId,
  message,
  parts,
  params,
  tools,
  history,
  org,
  subject,
  sender,
  resume,
}: Turn) {
  const ids = { conv_id: convId, run_id: runId, message_id: messageId };
  const more = { ...(tools.length > 0 && { tools }), ...(resume && { resume }) };
  return { ...ids, message, parts, params, history, org, subject, sender, ...more };
}

async function* eventsOf(pieces: AsyncIterable<NumberedText>, framed: boolean): AsyncGenerator<EngineEvent> {
  let hasEvents = false;
  for await (const piece of pieces) {
    if (piece.text === "[DONE]") {
      if (hasEvents) return;
      break;
    }
    const event = readEvent(piece);
    hasEvents = true;
    yield event;
    if (event.run_finished) return;
  }
  if (!hasEvents) throw new KhalaError("unavailable", "The engine's answer is empty: it has no event.");
  // Without a length or chunked encoding, a crash of the engine looks like a complete response.
  if (!framed) throw new KhalaError("unavailable", "The engine's answer ended without run_finished.");
}

function readEvent({ line, text }: NumberedText): EngineEvent {
  const invalid = (what: string, cause?: unknown) => {
    const message = `Line ${line} of the engine's answer ${what}: ${text.slice(0, EXCERPT)}`;
    return new KhalaError("unavailable", message, {}, { cause });
  };
  let event: EventJson;
  try {
    event = JSON.parse(text);
  } catch (cause) {
    throw invalid("is not JSON", cause);
  }
  const rounded = inexactInteger(text);
  if (rounded !== undefined) throw invalid(`cannot be kept: ${rounded} ${INEXACT_INTEGER}`);
  let kind: string | undefined;
  try {
    kind = fromJson(EventSchema, event).body.case;
  } catch (cause) {
    throw invalid("is not an event", cause);
  }
  if (event.run_failed) {
    const { message, code } = event.run_failed;
    throw new PublicError(message || "The engine failed and did not say why.", {
      code: engineFailureCode(code),
    });
  }
  if (!kind) throw invalid("is an event without a body");
  if (kind === "runStarted" || kind === "runStopped")
    throw invalid("is an event that only the server may send");
  return event;
}

function isSse(response: Response): boolean {
  const type = response.headers.get("content-type")?.split(";")[0]?.trim().toLowerCase();
  if (type === "text/event-stream") return true;
  if (type === "application/x-ndjson" || type === "application/ndjson") return false;
  const message = `The engine answered with the content type "${type ?? ""}". Send application/x-ndjson or text/event-stream.`;
  throw new KhalaError("unavailable", message);
}

/** Whether a complete response can be distinguished from a broken connection. */
function isFramed({ headers }: Response): boolean {
  return headers.has("content-length") || headers.has("transfer-encoding");
}

async function statusError(status: number, read: ReadBytes): Promise<Error> {
  const decoder = new TextDecoder();
  let text = "";
  for (let bytes = await read(); bytes && text.length < EXCERPT; bytes = await read())
    text += decoder.decode(bytes, { stream: true });
  const said = text.slice(0, EXCERPT).trim();
  const cause = new KhalaError("unavailable", `The engine answered ${status}${said && `: ${said}`}`);
  if (status !== 429) return cause;
  const message = "The engine is busy right now. Send the message again in a moment.";
  return new PublicError(message, { code: "rate_limited", cause });
}

/** A connection failure for end users, without the address. */
function connectionError(error: unknown): Error {
  if (error instanceof KhalaError || error instanceof PublicError) return error;
  const message = "The engine cannot be reached right now. Send the message again in a moment.";
  return new PublicError(message, { code: "network", cause: error });
}

/** The engine took too long; `detail` is for the log. */
function tooLate(detail: string): PublicError {
  const message = "The engine did not answer in time. Send the message again in a moment.";
  return new PublicError(message, { code: "timeout", cause: new Error(detail) });
}

/** A piece of the response and the line on which it begins. */
interface NumberedText {
  readonly line: number;
  readonly text: string;
}

/** The next bytes of the response; undefined at its end. */
type ReadBytes = () => Promise<Uint8Array | undefined>;

/** The lines of the response, with blank ones. Fails at a line above the limit, before it is all in memory. */
async function* linesOf(read: ReadBytes, limit: number): AsyncGenerator<NumberedText> {
  const decoder = new TextDecoder();
  let line = 1;
  let rest = "";
  const checked = (text: string): NumberedText => {
    if (text.length <= limit) return { line: line++, text: text.endsWith("\r") ? text.slice(0, -1) : text };
    const message = `Line ${line} of the engine's answer is longer than ${limit} characters. Send smaller events.`;
    throw new KhalaError("unavailable", message);
  };
  for (let bytes = await read(); bytes; bytes = await read()) {
    const parts = decoder.decode(bytes, { stream: true }).split("\n");
    parts[0] = rest + parts[0];
    rest = parts.pop()!;
    for (const part of parts) yield checked(part);
    if (rest.length > limit) checked(rest);
  }
  rest += decoder.decode();
  if (rest !== "") yield checked(rest);
}

/** Newline-delimited JSON. Blank lines are keep-alives. */
async function* ndjsonOf(lines: AsyncIterable<NumberedText>): AsyncGenerator<NumberedText> {
  for await (const entry of lines) if (entry.text.trim() !== "") yield entry;
}

/** The data of server-sent events. Comments are keep-alives; names and ids are ignored. */
async function* sseOf(lines: AsyncIterable<NumberedText>, limit: number): AsyncGenerator<NumberedText> {
  let open: NumberedText | undefined;
  for await (const { line, text } of lines) {
    if (text === "") {
      if (open) yield open;
      open = undefined;
      continue;
    }
    const [, value] = /^data(?:: ?(.*))?$/s.exec(text) ?? [];
    if (!text.startsWith("data") || (value === undefined && text !== "data")) continue;
    open = open ? { line: open.line, text: `${open.text}\n${value ?? ""}` } : { line, text: value ?? "" };
    if (open.text.length > limit) {
      const message = `The event on line ${open.line} of the engine's answer is longer than ${limit} characters. Send smaller events.`;
      throw new KhalaError("unavailable", message);
    }
  }
  if (open) yield open;
}
