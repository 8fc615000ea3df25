import type { KhalaClient } from "@khala/client";

type Ops = KhalaClient["ops"];
type Answer<Name extends "sockets" | "errors" | "traces" | "trace" | "config"> = Awaited<
  ReturnType<Ops[Name]>
>;

/** An open socket, with nothing missing. */
export interface Socket {
  readonly id: string;
  readonly subject: string;
  readonly org: string;
  readonly kind: string;
  readonly connectedAt: string;
  readonly remote: string;
  readonly queuedBytes: number;
  readonly sent: number;
  readonly state: string;
  readonly channels: readonly Channel[];
  /** What it follows, in a line. */
  readonly follows: string;
}

/** A channel of a socket, and where its topics stand. */
export interface Channel {
  readonly name: string;
  readonly cursors: readonly { readonly topic: string; readonly watermark: string }[];
}

/** A socket that is gone. */
export interface Close {
  readonly key: string;
  readonly at: string;
  readonly subject: string;
  readonly code: number;
  readonly reason: string;
  readonly kind: string;
}

/** Reads who is connected, and who was. */
export function readSockets({ sockets = [], closes = [] }: Answer<"sockets">): {
  readonly sockets: readonly Socket[];
  readonly closes: readonly Close[];
} {
  return {
    sockets: sockets.map((wire) => {
      const channels = (wire.channels ?? []).map(({ topic = "", cursors = {} }) => ({
        name: topic,
        cursors: Object.entries(cursors).map(([name, cursor]) => ({
          topic: name,
          watermark: cursor.watermark ?? "0",
        })),
      }));
      return {
        id: wire.id ?? "",
        subject: wire.subject ?? "",
        org: wire.org ?? "",
        kind: wire.kind ?? "",
        connectedAt: wire.connected_at ?? "",
        remote: wire.remote ?? "",
        queuedBytes: Number(wire.queued_bytes ?? 0),
        sent: Number(wire.sent ?? 0),
        state: wire.state ?? "ok",
        channels,
        follows: channels
          .flatMap(({ name, cursors }) =>
            cursors.length === 0 ? [name] : cursors.map((cursor) => cursor.topic),
          )
          .join(", "),
      };
    }),
    // Of two closes at the same moment none has a name: their order from the end is theirs for as long as they are kept.
    closes: closes.map(({ at = "", subject = "", code = 0, reason = "", kind = "" }, index) => ({
      key: `${closes.length - index} ${at} ${subject}`,
      at,
      subject,
      code: Number(code),
      reason,
      kind,
    })),
  };
}

export interface ErrorCount {
  readonly code: string;
  readonly count: number;
  readonly lastAt: string;
}

/** Reads how often each code was answered. */
export function readErrors({ errors = [] }: Answer<"errors">): readonly ErrorCount[] {
  return errors.map(({ code = "", count = 0, last_at = "" }) => ({
    code,
    count: Number(count),
    lastAt: last_at,
  }));
}

export interface TraceSummary {
  readonly id: string;
  readonly name: string;
  readonly startedAt: string;
  readonly ms: number;
  readonly spans: number;
  readonly status: string;
}

/** Reads the list of traces. */
export function readTraces({ traces = [] }: Answer<"traces">): readonly TraceSummary[] {
  return traces.map((wire) => ({
    id: wire.trace_id ?? "",
    name: wire.name ?? "",
    startedAt: wire.started_at ?? "",
    ms: Number(wire.duration_ms ?? 0),
    spans: Number(wire.spans ?? 0),
    status: wire.status ?? "ok",
  }));
}

/** A step of a trace. */
export interface Span {
  readonly id: string;
  readonly parent: string | undefined;
  readonly name: string;
  /** Milliseconds since 1970. */
  readonly start: number;
  readonly ms: number;
  readonly attributes: Readonly<Record<string, unknown>>;
  readonly status: string;
  readonly message: string;
}

/** Reads the steps of a trace. */
export function readSpans({ spans = [] }: Answer<"trace">): readonly Span[] {
  return spans.map((wire) => ({
    id: wire.span_id ?? "",
    parent: wire.parent_id,
    name: wire.name ?? "",
    start: Date.parse(wire.started_at ?? ""),
    ms: Number(wire.duration_ms ?? 0),
    attributes: wire.attributes ?? {},
    status: wire.status ?? "ok",
    message: wire.message ?? "",
  }));
}

export interface Setting {
  readonly name: string;
  readonly value: string;
  readonly isDefault: boolean;
  readonly isSecret: boolean;
  readonly about: string;
}

/** Reads the settings. */
export function readSettings({ settings = [] }: Answer<"config">): readonly Setting[] {
  return settings.map((wire) => ({
    name: wire.name ?? "",
    value: wire.value ?? "",
    isDefault: wire.default ?? false,
    isSecret: wire.secret ?? false,
    about: wire.about ?? "",
  }));
}
