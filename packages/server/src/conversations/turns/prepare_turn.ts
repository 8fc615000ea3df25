import { KhalaError } from "@khala/contracts";
import type { FileJson, PartJson } from "@khala/contracts/conversation/v1";
import type { StandardSchemaV1 } from "@standard-schema/spec";
import { notFound } from "../../access/access.ts";
import type { Caller } from "../../access/viewer.ts";
import type { Context } from "../../kit/context.ts";
import { invalid } from "../../kit/invalid.ts";
import type { Conversation } from "../conversation.ts";
import { fileIdOf, filePart, readDataUrl } from "../files/file_urls.ts";
import type { Files } from "../files/files.ts";
import type { ChatCommand } from "../plane.ts";
import { checkConvId } from "../runs/chat.ts";
import type { Store } from "../store.ts";
import { checkStorable, readParams } from "./params.ts";

export interface PrepareDeps {
  readonly store: Store;
  readonly files: Files;
  /** The engine's schema of params. */
  readonly params: StandardSchemaV1 | undefined;
}

const MAX_PARTS = 100;
const MAX_URL = 2_048;

/** Checks params and files of a message before its run is admitted. Files of `data:` URLs are stored. */
export async function prepareTurn(
  { clock }: Context,
  deps: PrepareDeps,
  caller: Caller,
  command: ChatCommand,
): Promise<ChatCommand> {
  checkConvId(command.convId);
  const { params, parts } = command;
  if (params) checkStorable(params);
  if (deps.params) await readParams(deps.params, params ?? {}, clock);
  if (!parts) return command;
  if (parts.length > MAX_PARTS) throw invalid("parts", `A message may have at most ${MAX_PARTS} parts.`);
  let conversation: Promise<Conversation> | undefined;
  const open = () => {
    conversation ??= deps.store.ensure(caller, "conversation.write", command.convId);
    return conversation;
  };
  const prepared: PartJson[] = [];
  for (const [i, part] of parts.entries())
    prepared.push(
      part.file ? { file: await prepareFile(deps, caller, open, part.file, `parts[${i}].file`) } : part,
    );
  return { ...command, parts: prepared };
}

async function prepareFile(
  { files }: PrepareDeps,
  caller: Caller,
  open: () => Promise<Conversation>,
  file: FileJson,
  field: string,
): Promise<FileJson> {
  const { url = "", media_type: mediaType = "", name = "" } = file;
  const fileId = fileIdOf(url);
  if (fileId !== undefined) {
    const { convId } = await open();
    const stored = await files.find({ org: caller.org, fileId });
    // One of another conversation is refused like one that does not exist.
    if (stored?.convId !== convId)
      throw new KhalaError("not_found", notFound("file", fileId).message, { field: `${field}.url` });
    return filePart(stored);
  }
  if (url.startsWith("data:")) {
    const data = readDataUrl(url);
    if (!data || data.bytes.length === 0)
      throw invalid(
        `${field}.url`,
        "The data: URL cannot be decoded. Send data:<media type>;base64,<bytes>.",
      );
    const declared = mediaType || data.mediaType;
    const author = caller.subject;
    const stored = { name: fileName(name) || "file", mediaType: declared, author };
    return filePart(await files.putBytes(await open(), stored, data.bytes));
  }
  if (!/^https?:\/\//.test(url) || url.length > MAX_URL || !URL.canParse(url)) {
    const what = `url must be /files/<file_id>, a data: URL, or an http(s) URL of at most ${MAX_URL} characters.`;
    throw invalid(`${field}.url`, what);
  }
  if (!/^[\w.+-]+\/[\w.+*-]+$/.test(mediaType))
    throw invalid(`${field}.media_type`, 'A file at another URL needs a media_type, such as "image/png".');
  return { url, media_type: mediaType, name: fileName(name), size: "0" };
}

/** Without control characters, and short enough to be stored. */
function fileName(name: string): string {
  return name
    .toWellFormed()
    .replace(/\p{Cc}/gu, "")
    .trim()
    .slice(0, 255);
}
