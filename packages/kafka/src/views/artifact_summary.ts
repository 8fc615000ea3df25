import type { Artifact } from "@khala/server/blackboard";
import { decodeArtifact } from "../topics/decoding.ts";
import type { LogRecord } from "../topics/log_reader.ts";
import { HEADER, headerText } from "../topics/record_headers.ts";
import { byIdKey } from "../topics/records.ts";

/** The part of an artifact that the views keep. */
export interface ArtifactSummary {
  readonly id: string;
  readonly version: number;
  readonly type: string;
  readonly org: string;
  readonly correlationId: string | undefined;
}

/** The version in a record of the index; undefined if it cannot be read. */
export function versionOf(record: LogRecord): number | undefined {
  const version = Number.parseInt(headerText(record, HEADER.index) ?? "", 10);
  if (Number.isSafeInteger(version) && version >= 1) return version;
  const decoded = decodeArtifact(record);
  return decoded.ok ? decoded.value.version : undefined;
}

/** The same with the rest that the views keep, of a record with this key. */
export function summaryOfRecord(
  record: LogRecord,
  key: string,
  version: number,
): ArtifactSummary | undefined {
  const header = headerText(record, HEADER.index) ?? "";
  try {
    const [type, org, correlationId]: unknown[] = JSON.parse(header.slice(header.indexOf(" ")));
    const id = key.slice(0, key.indexOf("@"));
    if (typeof type === "string" && typeof org === "string" && key === byIdKey(org, id))
      return { id, version, type, org, correlationId: correlationId as string | undefined };
  } catch {
    // Another program wrote it: its value has the same fields.
  }
  const decoded = decodeArtifact(record);
  return decoded.ok ? summaryOf(decoded.value) : undefined;
}

/** The part of an artifact that the views keep. */
export function summaryOf({
  id,
  version,
  type,
  org_id: org,
  correlation_id: correlationId,
}: Artifact): ArtifactSummary {
  return { id, version, type, org, correlationId };
}
