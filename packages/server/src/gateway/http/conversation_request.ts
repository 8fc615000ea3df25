import { toJson } from "@bufbuild/protobuf";
import { CONV_ID, KhalaError } from "@khala/contracts";
import {
  ChatRequestSchema,
  type ClientToolJson,
  ClientToolSchema,
  type PartJson,
  PartSchema,
  StopRequestSchema,
} from "@khala/contracts/conversation/v1";
import type { FastifyRequest } from "fastify";
import type { BusyPolicy } from "../../conversations/conversation.ts";
import { parseCursor } from "../../conversations/log/cursor.ts";
import type { ChatCommand, PresenceParams } from "../../conversations/plane.ts";
import type { StartPosition } from "../../conversations/timeline/attachment.ts";
import { queryOf, readMessage } from "./read_request.ts";

const MAX_REPLAY = 1_000;
const POLICIES: readonly string[] = ["reject", "queue", "interrupt"] satisfies BusyPolicy[];

/** Reads the id of a conversation, which other protocols have in a field of another name. */
export function readConvId(sent: unknown, field = "conv_id"): string {
  if (typeof sent === "string" && CONV_ID.test(sent)) return sent;
  throw new KhalaError(
    "invalid_request",
    `${field} must have 1 to 128 of A-Z a-z 0-9 . _ ~ - and start with a letter or digit.`,
    { field },
  );
}

/** Reads the id of a run, which may be absent where the request has only one run. */
export function readRunId(sent: string): string;
export function readRunId(sent: unknown): string | undefined;
export function readRunId(sent: unknown): string | undefined {
  if (sent === undefined || (typeof sent === "string" && /^[\x21-\x7e]{1,200}$/.test(sent))) return sent;
  throw new KhalaError("invalid_request", "run_id must be the id of a run, as the server sent it.", {
    field: "run_id",
  });
}

/** Reads which run is to be stopped: that of the body or of the query, or undefined for the one under way. */
export function readStop({ body, query }: Pick<FastifyRequest, "body" | "query">): string | undefined {
  const { runId } = readMessage(StopRequestSchema, body);
  const { run_id = runId } = queryOf({ query });
  if (runId === undefined || run_id === runId) return readRunId(run_id);
  const message = "The run_id of the body differs from that of the query. Send one of them.";
  throw new KhalaError("invalid_request", message, { field: "run_id" });
}

/** Reads where following begins. */
export function readStart({ after, replay }: { after?: unknown; replay?: unknown }): StartPosition {
  if (after !== undefined && replay !== undefined) {
    const message =
      "Send after or replay, not both: after resumes from a cursor, replay returns the last messages.";
    throw new KhalaError("invalid_request", message, { field: "replay" });
  }
  if (after !== undefined)
    return { kind: "after", cursor: parseCursor(typeof after === "string" ? after : "", "after") };
  if (replay === undefined) return { kind: "now" };
  const messages = typeof replay === "string" && /^\d{1,4}$/.test(replay) ? Number(replay) : replay;
  if (typeof messages === "number" && Number.isInteger(messages) && messages >= 1 && messages <= MAX_REPLAY)
    return { kind: "replay", messages };
  throw new KhalaError("invalid_request", `replay must be a whole number from 1 to ${MAX_REPLAY}.`, {
    field: "replay",
  });
}

/** Reads whether a socket takes part in the presence, and the name of its device. */
export function readPresence({
  device,
  presence,
}: {
  device?: unknown;
  presence?: unknown;
}): PresenceParams | undefined {
  if (device === undefined)
    return presence === undefined || presence === "0" || presence === false ? undefined : {};
  if (typeof device === "string" && /^\P{Cc}{1,64}$/u.test(device) && device.isWellFormed())
    return { device };
  const message = "device must be a name of 1 to 64 characters, without control characters.";
  throw new KhalaError("invalid_request", message, { field: "device" });
}

/** Reads a message that starts a run. `headerKey` is the Idempotency-Key header, if any. */
export function readChat(body: unknown, headerKey?: string): ChatCommand {
  checkParams(body);
  const request = readMessage(ChatRequestSchema, body);
  const { convId, message, idempotencyKey, policy, params, regenerate, edit } = request;
  readConvId(convId);
  const key = readKey(idempotencyKey, headerKey);
  const tools = readTools(request.tools.map((tool) => toJson(ClientToolSchema, tool)));
  const rest = {
    convId,
    ...(params && { params }),
    ...(tools.length > 0 && { tools }),
    ...(key !== undefined && { idempotencyKey: key }),
    ...(policy !== undefined && { policy: readPolicy(policy) }),
  };
  if (regenerate !== "") {
    if (message === "" && request.parts.length === 0 && edit === "")
      return { ...rest, message: "", regenerate };
    const problem = "Send regenerate without message, parts and edit: the question is already stored.";
    throw new KhalaError("invalid_request", problem, { field: "regenerate" });
  }
  if (request.parts.length > 0 && message !== "") {
    const problem = "Send message or parts, not both: message is text, parts are texts and files.";
    throw new KhalaError("invalid_request", problem, { field: "parts" });
  }
  if (request.parts.length === 0 && (message === "" || message.includes("\0"))) {
    const problem = "message must be a non-empty string without NUL characters.";
    throw new KhalaError("invalid_request", problem, { field: "message" });
  }
  const parts = request.parts.map((part, i) => readPart(toJson(PartSchema, part), `parts[${i}]`));
  return { ...rest, ...(parts.length > 0 ? contentOf(parts) : { message }), ...(edit !== "" && { edit }) };
}

const MAX_TOOLS = 64;
const MAX_TOOLS_BYTES = 64 << 10;

/** Checks the tools that a client executes. */
function readTools(tools: readonly ClientToolJson[]): readonly ClientToolJson[] {
  if (tools.length > MAX_TOOLS)
    throw new KhalaError("invalid_request", `A turn may have at most ${MAX_TOOLS} tools.`, {
      field: "tools",
    });
  const seen = new Set<string>();
  for (const [i, { name = "" }] of tools.entries()) {
    const isGood = /^[A-Za-z0-9_-]{1,64}$/.test(name) && !seen.has(name);
    seen.add(name);
    if (isGood) continue;
    const problem = "Each tool needs a unique name of 1 to 64 letters, digits, _ or -.";
    throw new KhalaError("invalid_request", problem, { field: `tools[${i}].name` });
  }
  const text = JSON.stringify(tools);
  if (text.includes("\\u0000"))
    throw new KhalaError("invalid_request", "tools must not contain the character NUL.", { field: "tools" });
  if (Buffer.byteLength(text) <= MAX_TOOLS_BYTES) return tools;
  const problem = `The tools of a turn may have at most ${MAX_TOOLS_BYTES} bytes.`;
  throw new KhalaError("payload_too_large", problem, { field: "tools" });
}

/** The library's error does not name the field. */
function checkParams(body: unknown): void {
  const { params } = Object(body) as { params?: unknown };
  if (params === undefined || params === null || (typeof params === "object" && !Array.isArray(params)))
    return;
  const problem = "params must be an object with the settings of the turn by name.";
  throw new KhalaError("invalid_request", problem, { field: "params" });
}

function readPart(part: PartJson, field: string): PartJson {
  const { text, file } = part;
  if (file) return { file };
  if (text === undefined)
    throw new KhalaError("invalid_request", "A part of a message needs a text or a file.", { field });
  if (text !== "" && !text.includes("\0")) return { text };
  const problem = "text must be a non-empty string without NUL characters.";
  throw new KhalaError("invalid_request", problem, { field: `${field}.text` });
}

/** A message of one text is a text. */
function contentOf(parts: readonly PartJson[]): Pick<ChatCommand, "message" | "parts"> {
  const message = parts.flatMap(({ text }) => text ?? []).join("\n");
  return parts.length === 1 && !parts[0]!.file ? { message } : { message, parts };
}

function readPolicy(text: string): BusyPolicy {
  if (POLICIES.includes(text)) return text as BusyPolicy;
  throw new KhalaError("invalid_request", `policy must be one of ${POLICIES.join(", ")}.`, {
    field: "policy",
  });
}

function readKey(inBody: string | undefined, inHeader: string | undefined): string | undefined {
  if (inBody !== undefined && inHeader !== undefined && inBody !== inHeader) {
    const message = "idempotency_key and the header Idempotency-Key differ. Send one of them.";
    throw new KhalaError("invalid_request", message, { field: "idempotency_key" });
  }
  const key = inBody ?? inHeader;
  if (key === undefined || /^\P{Cc}{1,255}$/u.test(key)) return key;
  const message = "An idempotency key must have 1 to 255 characters, without control characters.";
  throw new KhalaError("invalid_request", message, { field: "idempotency_key" });
}
