import { Icon } from "../parts/icons.tsx";
import { Json } from "../parts/json.tsx";
import { StateBadge } from "../parts/state_badge.tsx";
import { conversationWords } from "../strings/conversations.ts";
import { Said } from "./said.tsx";
import type { Part } from "./types.ts";

const words = conversationWords.parts;

/** One piece of a message. `open`: it is the piece that is being written. */
export function PartView({ part, open }: { readonly part: Part; readonly open: boolean }) {
  if (part.text !== undefined) return <Said text={part.text} />;
  if (part.reasoning !== undefined) return <Reasoning text={part.reasoning} open={open} />;
  if (part.tool) return <ToolUse tool={part.tool} />;
  if (part.custom)
    return (
      <Fold title={words.custom(part.custom.name ?? "")}>
        <Json value={part.custom.data ?? null} />
      </Fold>
    );
  return null;
}

function Reasoning({ text, open }: { readonly text: string; readonly open: boolean }) {
  return (
    <Fold title={open ? words.reasoningNow : words.reasoning} busy={open}>
      <Said text={text} className="said reasoning" />
    </Fold>
  );
}

function ToolUse({ tool }: { readonly tool: NonNullable<Part["tool"]> }) {
  const failed = tool.error !== undefined;
  const answered = failed || tool.output !== undefined;
  const state = failed ? "failed" : answered ? "ok" : "working";
  const word = failed ? words.failed : answered ? words.done : words.waiting;
  return (
    <Fold title={words.tool(tool.tool ?? "")} end={<StateBadge state={state} word={word} />}>
      <h4>{words.input}</h4>
      <Json value={tool.input ?? null} />
      {tool.output !== undefined && (
        <>
          <h4>{words.output}</h4>
          <Json value={tool.output} />
        </>
      )}
      {failed && (
        <>
          <h4>{words.error}</h4>
          <p className="failed">{tool.error}</p>
        </>
      )}
    </Fold>
  );
}

interface FoldProps {
  readonly title: string;
  readonly busy?: boolean;
  readonly end?: React.ReactNode;
  readonly children: React.ReactNode;
}

/** Something that is there for those who want to know: closed until it is asked for. */
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
