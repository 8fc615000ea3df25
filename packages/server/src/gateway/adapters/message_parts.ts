import type { PartJson } from "@khala/contracts/conversation/v1";
import { invalid } from "../../kit/invalid.ts";

/** A part of a message as the client sent it, not validated yet. */
interface SentPart {
  readonly type?: unknown;
  readonly text?: unknown;
  readonly url?: unknown;
  readonly mediaType?: unknown;
  readonly mimeType?: unknown;
  readonly filename?: unknown;
  readonly data?: unknown;
  readonly source?: unknown;
  readonly metadata?: unknown;
}

/** The parts of a UI message of the AI SDK: texts and files. Anything else is refused with its field, not dropped. */
export function readUiParts(sent: unknown, field: string): PartJson[] {
  return eachPart(sent, field, ({ type, url, mediaType, filename }, at) => {
    if (type !== "file") throw invalid(at, "A user message may only have parts of type text or file.");
    if (typeof url !== "string") throw invalid(`${at}.url`, "A file needs a url: a data: URL or an address.");
    return filePart(url, mediaType, filename);
  });
}

const MEDIA: Readonly<Record<string, string>> = {
  image: "image/*",
  audio: "audio/*",
  video: "video/*",
  document: "application/octet-stream",
};

/** The content of a user's message of AG-UI: a text, or texts, images, audio, video and documents. */
export function readAgUiContent(sent: unknown, field: string): PartJson[] {
  return eachPart(sent, field, (part, at) => {
    const { type, filename, metadata } = part;
    // Before 1.0 every file was "binary", with the fields of its source beside it.
    if (type === "binary") return sourcePart(part.data, part.url, part.mimeType, filename, at);
    const media = typeof type === "string" && Object.hasOwn(MEDIA, type) ? MEDIA[type] : undefined;
    if (media === undefined)
      throw invalid(at, "A user message may only have parts of type text, image, audio, video or document.");
    const source = Object(part.source) as { type?: unknown; value?: unknown; mimeType?: unknown };
    const { filename: named, name = named } = Object(metadata) as { filename?: unknown; name?: unknown };
    const { value, mimeType = media } = source;
    if (source.type === "data") return sourcePart(value, undefined, mimeType, name, `${at}.source`);
    if (source.type === "url") return sourcePart(undefined, value, mimeType, name, `${at}.source`);
    throw invalid(
      `${at}.source`,
      "source must be data or url. Khala cannot read files that are stored at a provider.",
    );
  });
}

/** Reads a list of parts, of which texts are the same everywhere. A text of its own is one part. */
function eachPart(
  sent: unknown,
  field: string,
  read: (part: SentPart, field: string) => PartJson,
): PartJson[] {
  if (typeof sent === "string") return sent === "" ? [] : [{ text: sent }];
  if (!Array.isArray(sent)) return [];
  return sent.flatMap((each: unknown, i) => {
    const part = Object(each) as SentPart;
    if (part.type !== "text") return read(part, `${field}[${i}]`);
    if (typeof part.text !== "string") throw invalid(`${field}[${i}].text`, "A text part needs a text.");
    // Clients send an empty text beside files.
    return part.text === "" ? [] : { text: part.text };
  });
}

function sourcePart(data: unknown, url: unknown, mimeType: unknown, name: unknown, field: string): PartJson {
  if (typeof url === "string") return filePart(url, mimeType, name);
  if (typeof data !== "string") throw invalid(field, "A file needs its bytes in base64, or a url.");
  const type = typeof mimeType === "string" ? mimeType : "";
  return filePart(`data:${type};base64,${data}`, type, name);
}

function filePart(url: string, mediaType: unknown, name: unknown): PartJson {
  const file = { url, ...(typeof mediaType === "string" && { media_type: mediaType }) };
  return { file: { ...file, ...(typeof name === "string" && { name }) } };
}

/** The fields that are set, as the params of a turn; undefined when there are none. */
export function readParams(fields: object): { params?: object } {
  const set = Object.entries(fields).filter(([, value]) => value !== undefined && value !== null);
  return set.length > 0 ? { params: Object.fromEntries(set) } : {};
}

/** An error of a request that cannot be taken. */
