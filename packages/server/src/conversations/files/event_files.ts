import type { EventJson, FileJson, PartJson } from "@khala/contracts/conversation/v1";
import type { ConversationRef } from "../conversation.ts";
import { MAX_TEXT_LENGTH, splitText } from "../runs/split_text.ts";
import { filePart, fileUrl, readDataUrl } from "./file_urls.ts";
import type { Files } from "./files.ts";

/** Publishes an event. A returned promise is backpressure: the engine waits for it. */
export type Publish = (event: EventJson) => Promise<void> | undefined;

/** Values of tools and custom events above this size become files: an entry of the log has at most 256 KiB. */
const MAX_VALUE_BYTES = 128 << 10;

/**
 * Publishes the events of a run's engine. What is too large for the log becomes a file of the conversation first: files of
 * `data:` URLs, and large inputs and outputs of tools, which are replaced by `{"file": "/files/<file_id>"}`.
 */
export function publishWithFiles(
  files: Pick<Files, "putBytes">,
  conversation: ConversationRef,
  push: Publish,
): Publish {
  async function storeFile(file: FileJson): Promise<FileJson> {
    const { url = "", media_type, name = "" } = file;
    const data = url.startsWith("data:") ? readDataUrl(url) : undefined;
    if (!data) return file;
    const mediaType = media_type || data.mediaType;
    const stored = { name: name || `file${extensionOf(mediaType)}`, mediaType, author: null };
    return filePart(await files.putBytes(conversation, stored, data.bytes));
  }

  async function storeValue(value: unknown, name: string): Promise<{ file: string }> {
    const file = { name: `${name}.json`, mediaType: "application/json", author: null };
    const { fileId } = await files.putBytes(conversation, file, Buffer.from(JSON.stringify(value)));
    return { file: fileUrl(fileId) };
  }

  async function store(event: EventJson): Promise<EventJson> {
    const { file_added, message, tool_call, tool_result, custom } = event;
    if (file_added?.file) return { file_added: { ...file_added, file: await storeFile(file_added.file) } };
    if (message?.parts) {
      const parts: PartJson[] = [];
      for (const part of message.parts) parts.push(part.file ? { file: await storeFile(part.file) } : part);
      return { message: { ...message, parts } };
    }
    if (tool_call && isLarge(tool_call.input))
      return {
        tool_call: { ...tool_call, input: await storeValue(tool_call.input, `${tool_call.tool}-input`) },
      };
    if (tool_result && isLarge(tool_result.output))
      return {
        tool_result: { ...tool_result, output: await storeValue(tool_result.output, `${tool_result.tool}`) },
      };
    if (custom && isLarge(custom.data))
      return { custom: { ...custom, data: await storeValue(custom.data, `${custom.name}`) } };
    return event;
  }

  return (event) => {
    if (event.text_delta || event.reasoning_delta) return push(event);
    if (!needsFile(event)) return pushAll(fitted(event), push);
    return store(event).then((stored) => pushAll(fitted(stored), push));
  };
}

function pushAll(events: readonly EventJson[], push: Publish): Promise<void> | undefined {
  let last: Promise<void> | undefined;
  for (const event of events) last = push(event) ?? last;
  return last;
}

function needsFile({ file_added, message, tool_call, tool_result, custom }: EventJson): boolean {
  const isData = (file: FileJson | undefined) => file?.url?.startsWith("data:") ?? false;
  return (
    isData(file_added?.file) ||
    (message?.parts?.some(({ file }) => isData(file)) ?? false) ||
    [tool_call?.input, tool_result?.output, custom?.data].some(isLarge)
  );
}

function isLarge(value: unknown): boolean {
  return value !== undefined && Buffer.byteLength(JSON.stringify(value)) > MAX_VALUE_BYTES;
}

/** Splits a long message into its beginning and deltas. Cuts a long error. */
function fitted(event: EventJson): EventJson[] {
  const { message, tool_result } = event;
  if ((message?.text?.length ?? 0) > MAX_TEXT_LENGTH) {
    const [first, ...rest] = splitText(message!.text!);
    const { message_id = "" } = message!;
    return [
      { message: { ...message!, text: first! } },
      ...rest.map((text) => ({ text_delta: { message_id, text } })),
    ];
  }
  if ((tool_result?.error?.length ?? 0) > MAX_TEXT_LENGTH)
    return [{ tool_result: { ...tool_result!, error: splitText(tool_result!.error!)[0]! } }];
  return [event];
}

function extensionOf(mediaType: string | undefined): string {
  const [, subtype] = /^(?:image|audio|video)\/([a-z0-9]+)/.exec(mediaType ?? "") ?? [];
  return subtype ? `.${subtype}` : "";
}
