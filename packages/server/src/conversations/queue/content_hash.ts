import { canonicalJson } from "@khala/contracts";
import type { ClientToolJson, PartJson } from "@khala/contracts/conversation/v1";
import { sha256 } from "../../kit/hash.ts";

/** The content of a message: two requests with one idempotency key must have the same. */
export interface MessageContent {
  readonly message: string;
  readonly parts?: readonly PartJson[];
  readonly params?: unknown;
  readonly regenerate?: string | undefined;
  readonly edit?: string | undefined;
  readonly tools?: readonly ClientToolJson[];
}

/** The hash of a message's content. The policy and the order of keys do not count. */
export function contentHash({
  message,
  parts = [],
  params = null,
  tools = [],
  regenerate,
  edit,
}: MessageContent): string {
  const fork = { ...(regenerate !== undefined && { regenerate }), ...(edit !== undefined && { edit }) };
  const more = tools.length > 0 && { tools: [...tools] };
  return sha256(canonicalJson({ message, parts, params, ...fork, ...more }));
}
