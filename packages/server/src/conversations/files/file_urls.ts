import type { FileJson, StoredFileJson } from "@khala/contracts/conversation/v1";
import type { StoredFile } from "./files.ts";

/** The address of a file on every server of the installation. */
export function fileUrl(fileId: string): string {
  return `/files/${fileId}`;
}

/** The id in the address of a file of ours; undefined for other addresses. */
export function fileIdOf(url: string): string | undefined {
  return /^\/files\/([A-Za-z0-9-]{1,64})$/.exec(url)?.[1];
}

/** A file as part of a message. */
export function filePart({ fileId, mediaType, name, size }: StoredFile): FileJson {
  return { url: fileUrl(fileId), media_type: mediaType, name, size: String(size) };
}

/** A file as the answer to its upload. */
export function fileAnswer(file: StoredFile): StoredFileJson {
  return { file_id: file.fileId, ...filePart(file), created_at: file.createdAt };
}

/** The bytes of a `data:` URL and the type that it declares; undefined for other addresses. */
export function readDataUrl(url: string): { mediaType: string | undefined; bytes: Buffer } | undefined {
  const [, type, base64, data] = /^data:([^,;]*)(?:;(?!base64,)[^,;]*)*(;base64)?,(.*)$/s.exec(url) ?? [];
  if (data === undefined) return undefined;
  const mediaType = type || undefined;
  if (base64) return { mediaType, bytes: Buffer.from(data, "base64") };
  try {
    return { mediaType, bytes: Buffer.from(decodeURIComponent(data)) };
  } catch {
    return undefined;
  }
}
