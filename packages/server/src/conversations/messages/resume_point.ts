import type {
  KeptMessageJson,
  ToolJson,
  ToolResultJson,
  TranscriptMessageJson,
} from "@khala/contracts/conversation/v1";

/** The part of a run that another server keeps when it resumes it. */
export interface ResumePoint {
  /** Completed steps: whole messages, and parts up to the last result of a tool. */
  readonly kept: KeptMessageJson[];
  /** Calls among them that have no result. The step after them is made again, they are not. */
  readonly interrupted: ToolResultJson[];
  /** The kept messages, with what is kept of them. */
  readonly messages: TranscriptMessageJson[];
}

const INTERRUPTED = "The call was interrupted.";

/**
 * Finds the last completed step in the messages of a run, oldest first. Everything is kept of a run that has waited: it ended
 * its last step before.
 */
export function resumePoint(
  all: readonly TranscriptMessageJson[],
  { waited = false }: { readonly waited?: boolean } = {},
): ResumePoint {
  const own = all.filter(({ role }) => role !== "user");
  const counts = own.map(({ status, parts = [] }) =>
    status === "done" || waited
      ? parts.length
      : parts.findLastIndex(({ tool }) => tool && isSettled(tool)) + 1,
  );
  const last = own.findLastIndex(({ status }, i) => status === "done" || counts[i]! > 0);
  const messages = own.slice(0, last + 1).map((message, i) => {
    const parts = (message.parts ?? []).slice(0, i === last ? counts[i]! : undefined);
    return { ...message, parts };
  });
  const kept = messages.map(({ message_id = "", parts }) => ({ message_id, parts: parts.length }));
  const interrupted = messages.flatMap(({ message_id = "", parts }) =>
    parts.flatMap(({ tool }) =>
      tool && !isSettled(tool)
        ? [{ message_id, tool_call_id: tool.tool_call_id ?? "", tool: tool.tool ?? "", error: INTERRUPTED }]
        : [],
    ),
  );
  return { kept, interrupted, messages: messages.map(settled) };
}

/** Whether a call has its result, or the decision after which its engine executes it or not. */
function isSettled({ output, error, decision }: ToolJson): boolean {
  return output !== undefined || error !== undefined || decision !== undefined;
}

/** The message with an error for each interrupted call. */
function settled({ parts = [], ...message }: TranscriptMessageJson): TranscriptMessageJson {
  return {
    ...message,
    parts: parts.map((part) =>
      part.tool && !isSettled(part.tool) ? { tool: { ...part.tool, error: INTERRUPTED } } : part,
    ),
  };
}
