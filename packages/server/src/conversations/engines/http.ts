import { fromJson } from "@bufbuild/protobuf";
import { KhalaError } from "@khala/contracts";
import { type EventJson, EventSchema } from "@khala/contracts/conversation/v1";
import { type Clock, systemClock } from "../../kit/clock.ts";
import type { EngineEvent, EngineFactory, Turn } from "./engine.ts";
import { linesOf, type NumberedText, ndjsonOf, type ReadBytes, sseOf } from "./http_lines.ts";

export interface HttpEngineOptions {
  readonly headers?: Readonly<Record<string, string>>;
  /** Sent as `Authorization: Bearer …`. */
  readonly bearer?: string;
  /** How long until the answer begins with its status and headers; 10 s by default. */
  readonly connectTimeoutMs?: number;
  /** How long the answer may say nothing, not even a blank line; 60 s by default, at most 290 s. */
  readonly idleTimeoutMs?: number;
  /** The longest line, or event; 1 Mi characters by default. */
  readonly maxLineLength?: number;
  readonly clock?: Clock;
}

/** `fetch` itself gives up after 300 s of silence, with a message that helps nobody. */
const LONGEST_IDLE_MS = 290_000;
const EXCERPT = 200;

/** An engine in another process, in any language, by HTTP. docs/ENGINES.md is the contract. */
export function http(url: string, options: HttpEngineOptions = {}): EngineFactory {
  const { connectTimeoutMs = 10_000, idleTimeoutMs = 60_000, maxLineLength = 1_048_576 } = options;
  const { clock = systemClock, bearer } = options;
  if (!/^https?:$/.test(new URL(url).protocol)) throw new TypeError("The engine's address begins with http.");
  if (idleTimeoutMs > LONGEST_IDLE_MS)
    throw new TypeError(`idleTimeoutMs is at most ${LONGEST_IDLE_MS}: let the engine send blank lines.`);
  const headers = {
    ...options.headers,
    "content-type": "application/json",
    accept: "application/x-ndjson, text/event-stream",
    ...(bearer !== undefined && { authorization: `Bearer ${bearer}` }),
  };

  async function* run(turn: Turn, signal: AbortSignal): AsyncGenerator<EngineEvent> {
    const leaving = new AbortController();
    /** Waits for a part of the answer, as long as that may take. */
    const within = async <T>(ms: number, late: string, part: Promise<T>): Promise<T> => {
      const cancel = clock.after(ms, () => leaving.abort(new KhalaError("unavailable", late)));
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
      const response = await within(connectTimeoutMs, late, answer);
      const reader = response.body?.getReader();
      const silent = `The engine said nothing for ${idleTimeoutMs} ms.`;
      const read: ReadBytes = async () =>
        reader && (await within(idleTimeoutMs, silent, reader.read())).value;
      if (!response.ok) throw await refusal(response.status, read);
      const lines = linesOf(read, maxLineLength);
      const pieces = isSse(response) ? sseOf(lines, maxLineLength) : ndjsonOf(lines);
      yield* eventsOf(pieces, isFramed(response));
    } catch (error) {
      if (signal.aborted) return;
      throw leaving.signal.aborted ? leaving.signal.reason : readable(error);
    } finally {
      leaving.abort();
    }
  }

  return () => ({ run });
}

function requestOf({ convId, runId, messageId, message, history, org, subject }: Turn) {
  return { conv_id: convId, run_id: runId, message_id: messageId, message, history, org, subject };
}

async function* eventsOf(pieces: AsyncIterable<NumberedText>, framed: boolean): AsyncGenerator<EngineEvent> {
  let said = false;
  for await (const piece of pieces) {
    if (piece.text === "[DONE]") {
      if (said) return;
      break;
    }
    const event = readEvent(piece);
    said = true;
    yield event;
    if (event.run_finished) return;
  }
  if (!said) throw new KhalaError("unavailable", "The engine's answer is empty: it has no event.");
  // Without a length or chunks, a crash of the engine looks like the end.
  if (!framed) throw new KhalaError("unavailable", "The engine's answer ended without run_finished.");
}

function readEvent({ line, text }: NumberedText): EngineEvent {
  const wrong = (what: string, cause?: unknown) => {
    const message = `Line ${line} of the engine's answer ${what}: ${text.slice(0, EXCERPT)}`;
    return new KhalaError("unavailable", message, {}, { cause });
  };
  let event: EventJson;
  try {
    event = JSON.parse(text);
  } catch (cause) {
    throw wrong("is not JSON", cause);
  }
  let kind: string | undefined;
  try {
    kind = fromJson(EventSchema, event).body.case;
  } catch (cause) {
    throw wrong("is not an event", cause);
  }
  if (event.run_failed)
    throw new KhalaError("unavailable", event.run_failed.message || "The engine failed and did not say why.");
  if (!kind) throw wrong("is an event without a body");
  if (kind === "runStarted" || kind === "runStopped") throw wrong("says what only Khala says");
  return event;
}

function isSse(response: Response): boolean {
  const type = response.headers.get("content-type")?.split(";")[0]?.trim().toLowerCase();
  if (type === "text/event-stream") return true;
  if (type === "application/x-ndjson" || type === "application/ndjson") return false;
  const message = `The engine answered with the content type "${type ?? ""}". Send application/x-ndjson or text/event-stream.`;
  throw new KhalaError("unavailable", message);
}

/** Whether the end of the answer can be told from a connection that was cut. */
function isFramed({ headers }: Response): boolean {
  return headers.has("content-length") || headers.has("transfer-encoding");
}

async function refusal(status: number, read: ReadBytes): Promise<KhalaError> {
  const decoder = new TextDecoder();
  let text = "";
  for (let bytes = await read(); bytes && text.length < EXCERPT; bytes = await read())
    text += decoder.decode(bytes, { stream: true });
  const said = text.slice(0, EXCERPT).trim();
  return new KhalaError("unavailable", `The engine answered ${status}${said && `: ${said}`}`);
}

/** What went wrong with the connection, without the address: people read it. */
function readable(error: unknown): KhalaError {
  if (error instanceof KhalaError) return error;
  const code: unknown = Object((error as Error).cause).code;
  const why = typeof code === "string" ? ` (${code})` : "";
  const message = `The connection to the engine failed${why}. Is it running?`;
  return new KhalaError("unavailable", message, {}, { cause: error });
}
