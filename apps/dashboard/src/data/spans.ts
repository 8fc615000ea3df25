import type { KhalaClient } from "@khala/client";
import { completeAll } from "./wire.ts";

const SPAN = {
  span_id: "",
  parent_id: undefined as string | undefined,
  name: "",
  started_at: "",
  duration_ms: 0,
  attributes: {} as Readonly<Record<string, unknown>>,
  status: "ok",
  message: "",
};

/** A span of a trace. `start` is in milliseconds since 1970. */
export type Span = Readonly<typeof SPAN> & { readonly start: number };

/** Reads the spans of a trace. */
export function readSpans({ spans }: Awaited<ReturnType<KhalaClient["ops"]["trace"]>>): readonly Span[] {
  return completeAll(SPAN, spans).map((span) => ({ ...span, start: Date.parse(span.started_at) }));
}
