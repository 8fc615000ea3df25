import { memo, type ReactNode } from "react";
import { Button } from "../ui/controls/button.tsx";
import { Icon } from "../ui/controls/icons.tsx";
import { StateBadge } from "../ui/feedback/state_badge.tsx";
import { Json } from "../ui/json/json.tsx";
import { MAX_MARKDOWN, Markdown, OutLink } from "../ui/markdown/markdown.tsx";
import type { MessageActions } from "./message_actions.tsx";
import { MessageFile } from "./message_file.tsx";
import type { Part } from "./types.ts";

type Tool = NonNullable<Part["tool"]>;

interface PartProps {
  readonly part: Part;
  /** It is still being written. */
  readonly streaming: boolean;
  /** A person's text is shown as it was typed. */
  readonly isPlain: boolean;
  /** Absent where messages are only shown. */
  readonly onDecide?: MessageActions["decide"] | undefined;
}

/** One part of a message. */
export function PartView({ part, streaming, isPlain, onDecide }: PartProps) {
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
  if (part.tool) return <ToolCall tool={part.tool} onDecide={onDecide} />;
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

/** What the call waits for; undefined once it is decided or done. */
export function waitOf({ waits_for, decision, output, error }: Tool): "approval" | "client" | undefined {
  if (output !== undefined || error !== undefined || decision) return undefined;
  if (waits_for === "approval") return "approval";
  return waits_for === "output" ? "client" : undefined;
}

function ToolBadge({ tool }: { readonly tool: Tool }) {
  const wait = waitOf(tool);
  if (wait)
    return <StateBadge state="waiting" word={`waiting for ${wait === "client" ? "the client" : wait}`} />;
  if (tool.decision?.approved === false) return <StateBadge state="waiting" word="rejected" />;
  if (tool.error !== undefined) return <StateBadge state="failed" />;
  if (tool.output !== undefined) return <StateBadge state="ok" word="done" />;
  return <StateBadge state="working" word="running" />;
}

function ToolCall({ tool, onDecide }: { readonly tool: Tool; readonly onDecide: PartProps["onDecide"] }) {
  const { tool: name = "", tool_call_id: id = "", input = null } = tool;
  const isPending = waitOf(tool) === "approval";
  return (
    <Fold title={`Tool: ${name}`} end={<ToolBadge tool={tool} />} open={isPending}>
      <h4>Input</h4>
      <Json value={input} />
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
      {tool.decision && (
        <p className="quiet">
          {tool.decision.approved ? "Approved" : "Rejected"} by {tool.decision.decided_by}
          {tool.decision.reason && `: ${tool.decision.reason}`}
        </p>
      )}
      {isPending && onDecide && (
        <p className="tool-decide">
          <Button
            kind="primary"
            icon="check"
            aria-label={`Approve the tool ${name}`}
            onClick={() => onDecide(id, true)}
          >
            Approve
          </Button>
          <Button kind="danger" aria-label={`Reject the tool ${name}`} onClick={() => onDecide(id, false)}>
            Reject
          </Button>
        </p>
      )}
    </Fold>
  );
}

interface FoldProps {
  readonly title: string;
  readonly busy?: boolean;
  readonly end?: ReactNode;
  /** Open at first, for what needs a decision. */
  readonly open?: boolean;
  readonly children: ReactNode;
}

/** Details that can be opened. */
function Fold({ title, busy = false, end, open = false, children }: FoldProps) {
  return (
    <details className="fold" open={open}>
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
