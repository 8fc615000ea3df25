import { KhalaError } from "@khala/contracts";
import type { Encoding } from "../../sync/read/update_codec.ts";

/** How the client wants to be written to: the join parameter `encoding`. */
export function encodingOf(params: unknown): Encoding {
  const encoding = (params as { encoding?: unknown } | null)?.encoding ?? "json";
  if (encoding === "json" || encoding === "proto") return encoding;
  throw new KhalaError("invalid_request", 'The encoding is "json" or "proto".', { field: "encoding" });
}
