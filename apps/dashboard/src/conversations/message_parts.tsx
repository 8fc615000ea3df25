import { memo, type ReactNode } from "react";
import { Icon } from "../ui/controls/icons.tsx";
import { StateBadge } from "../ui/feedback/state_badge.tsx";
import { Json } from "../ui/json/json.tsx";
import { MAX_MARKDOWN, Markdown, OutLink } from "../ui/markdown/markdown.tsx";
import { MessageFile } from "./message_file.tsx";
import type { Part } from "./types.ts";

interface PartProps {
  readonly part: Part;
  /** It is still being written. */
  readonly streaming: boolean;
  /** A person's text is shown as it was typed. */
  readonly isPlain: boolean;
}

/** One part of a message. */
export function PartView({ part, streaming, isPlain }: PartProps) {
  if (part.text !== undefined)
    return isPlain || part.text.length > MAX_MARKDOWN ? (
      <MessageText text={part.text} />
    ) : (
      <Markdown text={part.text} />
    );
  if (part.reasoning !== undefined)
    return (
      <Fold title={streaming ? "Reasoning…" : "Reasoning"} busy={streaming}>
        <MessageText text={part.reasoning} className="message-text reasoning" />
      </Fold>
    );
  if (part.tool) return <ToolCall tool={part.tool} />;
  if (part.file) return <MessageFile file={part.file} />;
  if (part.source)
    return (
      <p className="message-source">
        Source: <OutLink href={part.source.url ?? ""}>{part.source.title || part.source.url}</OutLink>
      </p>
    );
  if (part.custom)
    return (
      <Fold title={`Data: ${part.custom.name ?? ""}`}>
        <Json value={part.custom.data ?? null} />
      </Fold>
    );
  return null;
}

function ToolCall({ tool }: { readonly tool: NonNullable<Part["tool"]> }) {
  const badge =
    tool.error !== undefined ? (
      <StateBadge state="failed" />
    ) : tool.output !== undefined ? (
      <StateBadge state="ok" word="done" />
    ) : (
      <StateBadge state="working" word="running" />
    );
  return (
    <Fold title={`Tool: ${tool.tool ?? ""}`} end={badge}>
      <h4>Input</h4>
      <Json value={tool.input ?? null} />
      {tool.output !== undefined && (
        <>
          <h4>Output</h4>
          <Json value={tool.output} />
        </>
      )}
      {tool.error !== undefined && (
        <>
          <h4>Error</h4>
          <p className="failed">{tool.error}</p>
        </>
      )}
    </Fold>
  );
}

interface FoldProps {
  readonly title: string;
  readonly busy?: boolean;
  readonly end?: ReactNode;
  readonly children: ReactNode;
}

/** Details that are closed at first. */
function Fold({ title, busy = false, end, children }: FoldProps) {
  return (
    <details className="fold">
      <summary>
        <span className="fold-mark">
          <Icon name={busy ? "working" : "chevron"} size={12} />
        </span>
        <span>{title}</span>
        {end}
      </summary>
      <div className="fold-body">{children}</div>
    </details>
  );
}

/** Long enough that few are needed, short enough to render one again with every token. */
const CHUNK = 4_000;

interface MessageTextProps {
  readonly text: string;
  readonly className?: string;
}

/** Plain text. A long one is rendered in chunks, so that one more token does not render all of it again. */
function MessageText({ text, className = "message-text" }: MessageTextProps) {
  if (text.length <= CHUNK) return <p className={className}>{text}</p>;
  return (
    <p className={className}>
      {chunksOf(text).map((chunk, index) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: text is only appended
        <Chunk key={index} text={chunk} />
      ))}
    </p>
  );
}

const Chunk = memo(function Chunk({ text }: { readonly text: string }) {
  return <span>{text}</span>;
});

/** Splits a text; each chunk but the last stays the same while the text grows. */
export function chunksOf(text: string): readonly string[] {
  const chunks: string[] = [];
  let start = 0;
  while (text.length - start > CHUNK) {
    const blank = text.lastIndexOf(" ", start + CHUNK);
    const end = blank > start ? blank : start + CHUNK;
    chunks.push(text.slice(start, end));
    start = end;
  }
  chunks.push(text.slice(start));
  return chunks;
}
