import { KhalaError } from "@khala/contracts";
import type { FileJson, PartJson, ToolJson, TranscriptMessageJson } from "@khala/contracts/conversation/v1";
import type { AssistantModelMessage, ModelMessage, ToolModelMessage, UserModelMessage } from "ai";
import { fileIdOf } from "../files/file_urls.ts";
import type { Turn } from "./engine.ts";

type UserPart = Exclude<UserModelMessage["content"], string>[number];
type AssistantPart = Exclude<AssistantModelMessage["content"], string>[number];
type ToolPart = ToolModelMessage["content"][number];
type ToolOutput = Extract<ToolPart, { type: "tool-result" }>["output"];
type FilePart = Extract<UserPart, { type: "file" }>;

/** The most bytes of files in one request to a model, newest first. Of those beyond it the model gets the names. */
const MAX_FILE_BYTES = 32 << 20;

/** Most providers take images and PDF as files, and refuse text: it is given as text. */
const TEXTUAL = /^text\/|^(application|image)\/([\w.-]+\+)?(json|xml|yaml|javascript)$/;

type Conversation = Pick<Turn, "history" | "parts" | "resume" | "readFile">;

/**
 * The history, the new message, and what is kept of an interrupted answer in the AI SDK's format. Files of ours are loaded;
 * those elsewhere stay addresses.
 */
export async function modelMessages(turn: Conversation): Promise<ModelMessage[]> {
  const loaded = await loadFiles(turn);
  const history = turn.history.flatMap((message) => modelMessage(message, loaded));
  const kept = turn.resume?.messages.flatMap((message) => modelMessage(message, loaded, true)) ?? [];
  return [...history, { role: "user", content: userContent(turn.parts, loaded) }, ...kept];
}

/** Files by their URL; null for one that is missing, or left out. */
type LoadedFiles = ReadonlyMap<string, { readonly mediaType: string; readonly bytes: Uint8Array } | null>;

async function loadFiles({ history, parts, resume, readFile }: Conversation): Promise<LoadedFiles> {
  const partsOf = (messages: readonly TranscriptMessageJson[] = []) =>
    messages.flatMap((of) => of.parts ?? []);
  const all = [...partsOf(history), ...parts, ...partsOf(resume?.messages)];
  const urls = all
    .flatMap(({ file, tool }) => [file?.url, referenceOf(tool?.input), referenceOf(tool?.output)])
    .reverse();
  const loaded = new Map<string, { mediaType: string; bytes: Uint8Array } | null>();
  let bytes = 0;
  for (const url of urls) {
    if (url === undefined || loaded.has(url) || fileIdOf(url) === undefined) continue;
    const file = bytes < MAX_FILE_BYTES ? await readFile(url).catch(nullIfGone) : null;
    bytes += file?.bytes.length ?? 0;
    loaded.set(url, bytes <= MAX_FILE_BYTES ? file : null);
  }
  return loaded;
}

function nullIfGone(error: unknown): null {
  if (error instanceof KhalaError && error.code === "not_found") return null;
  throw error;
}

/** The file used instead of a large value of a tool. */
function referenceOf(output: unknown): string | undefined {
  const { file, ...rest } = Object(output) as { file?: unknown };
  return typeof file === "string" && Object.keys(rest).length === 0 ? file : undefined;
}

function modelMessage(
  { role = "assistant", parts = [] }: TranscriptMessageJson,
  loaded: LoadedFiles,
  goesOn = false,
): ModelMessage[] {
  if (role === "assistant") return assistantMessages(parts, loaded, goesOn);
  if (role === "user") {
    const content = userContent(parts, loaded);
    return content.length > 0 ? [{ role, content }] : [];
  }
  const content = parts.map(({ text = "" }) => text).join("");
  return content === "" ? [] : [{ role: "system", content }];
}

function userContent(parts: readonly PartJson[], loaded: LoadedFiles): UserPart[] {
  return parts.flatMap(({ text, file }): UserPart[] => {
    if (file) return [filePart(file, loaded)];
    return text ? [{ type: "text", text }] : [];
  });
}

function filePart(file: FileJson, loaded: LoadedFiles): FilePart | { type: "text"; text: string } {
  const { url = "", media_type: mediaType = "application/octet-stream", name = "" } = file;
  const filename = name !== "" && { filename: name };
  if (fileIdOf(url) === undefined) return { type: "file", data: new URL(url), mediaType, ...filename };
  const content = loaded.get(url);
  if (!content) return { type: "text", text: `[The file ${JSON.stringify(name)} is left out.]` };
  if (TEXTUAL.test(content.mediaType))
    return {
      type: "text",
      text: `[The file ${JSON.stringify(name)}]\n${Buffer.from(content.bytes).toString()}`,
    };
  return { type: "file", data: content.bytes, mediaType: content.mediaType, ...filename };
}

/**
 * Tool results are separate messages after their calls. Reasoning is left out: a provider accepts only reasoning that it
 * signed itself.
 */
function assistantMessages(parts: readonly PartJson[], loaded: LoadedFiles, goesOn: boolean): ModelMessage[] {
  const messages: ModelMessage[] = [];
  let content: AssistantPart[] = [];
  let results: ToolPart[] = [];
  const flush = () => {
    if (content.length > 0) messages.push({ role: "assistant", content });
    if (results.length > 0) messages.push({ role: "tool", content: results });
    content = [];
    results = [];
  };
  for (const { text, tool, file } of parts) {
    if (text || file) {
      // The AI SDK executes what the last message approves: a call that was approved stays in it.
      if (results.length > 0 && results.every(({ type }) => type === "tool-result")) flush();
      content.push(file ? filePart(file, loaded) : { type: "text", text: text ?? "" });
    } else if (tool) {
      const { tool_call_id: toolCallId = "", tool: toolName = "", input = null } = tool;
      content.push({ type: "tool-call", toolCallId, toolName, input: toolValue(input, loaded) });
      if (goesOn && isApproved(tool)) {
        const { reason } = tool.decision ?? {};
        content.push({ type: "tool-approval-request", approvalId: toolCallId, toolCallId });
        results.push({
          ...{ type: "tool-approval-response", approvalId: toolCallId, approved: true },
          ...(reason && { reason }),
        });
      } else results.push({ type: "tool-result", toolCallId, toolName, output: toolOutput(tool, loaded) });
    }
  }
  flush();
  return messages;
}

/** Whether the call was approved, and is to be executed now. */
function isApproved({ decision, output, error }: ToolJson): boolean {
  return decision?.approved === true && output === undefined && error === undefined;
}

/** Every call needs a result, even an interrupted one, or the provider refuses the history. */
function toolOutput({ output, error, decision }: ToolJson, loaded: LoadedFiles): ToolOutput {
  const { approved, reason } = decision ?? {};
  if (decision && !approved) return { type: "execution-denied", ...(reason && { reason }) };
  if (error !== undefined) return { type: "error-text", value: error };
  if (output === undefined) return { type: "error-text", value: "The call was interrupted." };
  return { type: "json", value: toolValue(output, loaded) };
}

/** A value of a tool; a large one is read from its file. */
function toolValue<Value>(value: Value, loaded: LoadedFiles): Value {
  const content = loaded.get(referenceOf(value) ?? "");
  if (content?.mediaType !== "application/json") return value;
  return JSON.parse(Buffer.from(content.bytes).toString());
}
