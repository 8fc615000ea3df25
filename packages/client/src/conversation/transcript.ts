import { foldMessages } from "@khala/contracts";
import type {
  BranchChangedJson,
  EventFrameJson,
  EventJson,
  HelloJson,
  ResyncJson,
  RunFailedJson,
  RunFinishedJson,
  RunJson,
  SnapshotJson,
  TranscriptMessageJson,
} from "@khala/contracts/conversation/v1";
import type { ConversationFrame, ConversationState } from "./source.ts";

/** How a run ended. */
export type RunOutcome = {
  readonly run_id: string;
  readonly status: "finished" | "failed" | "stopped";
} & Readonly<RunFailedJson & RunFinishedJson>;

/** The result of a conversation's frames. Unchanged objects stay the same. */
export interface Transcript extends ConversationState {
  /** How the last run ended, if this client saw it. */
  readonly outcome: RunOutcome | undefined;
  /** The engine's status text. */
  readonly activity: string | undefined;
  readonly memory: Memory;
}

/** Bookkeeping for the next frame. */
interface Memory {
  /** Whether `seq` is exactly that of the last entry, or a lower bound. */
  readonly exact: boolean;
  /** The next snapshot replaces everything. */
  readonly resyncing: boolean;
  /** The last runs whose end this client received. */
  readonly ended: readonly string[];
}

const REMEMBERED_RUNS = 16;
const NOTHING: Memory = { exact: false, resyncing: false, ended: [] };

/** The empty transcript: no cursor, and `seq` 0. */
export const EMPTY: Transcript = {
  messages: [],
  run: null,
  cursor: "",
  seq: "0",
  outcome: undefined,
  activity: undefined,
  memory: NOTHING,
};

/** The transcript after a frame; the same object when nothing changed. */
export function reduce(transcript: Transcript, frame: ConversationFrame): Transcript {
  switch (frame.type) {
    case "hello":
      // Its cursor is not used: it is ours, or that of a snapshot to come.
      return withRun(transcript, (frame as HelloJson).run ?? null);
    case "snapshot":
      return afterSnapshot(transcript, frame as SnapshotJson);
    case "resync":
      return afterResync(transcript, frame as ResyncJson);
    case "event":
      return afterEvent(transcript, frame as EventFrameJson);
    default:
      return transcript;
  }
}

/** Whether entries before this frame are missing. Following again from the cursor brings them. */
export function leavesGap({ seq, memory }: Transcript, frame: ConversationFrame): boolean {
  if (frame.type !== "event" || !memory.exact) return false;
  return BigInt((frame as EventFrameJson).seq ?? "0") > BigInt(seq) + 1n;
}

/** Replaces the state; the same object when the new one is older. */
export function restoreState(transcript: Transcript, state: ConversationState): Transcript {
  if (isBehind(state, transcript)) return transcript;
  const { run, cursor, seq } = state;
  const messages = reuseObjects(transcript.messages, state.messages);
  const { ended } = transcript.memory;
  return settle({ ...EMPTY, messages, run, cursor, seq, memory: { ...NOTHING, ended } });
}

/** A transcript from the storage. Without a cursor it is incomplete, and the next snapshot replaces it. */
export function fromStored(state: ConversationState): Transcript {
  const transcript = restoreState(EMPTY, state);
  if (state.cursor !== "") return transcript;
  return { ...transcript, memory: { ...transcript.memory, resyncing: true } };
}

/** The transcript without a run. */
export function withoutRun(transcript: Transcript): Transcript {
  return withRun(transcript, null);
}

/** Message ids are unique, so a common one means that both states are of the same log. */
function isBehind(state: ConversationState, { messages, seq }: Transcript): boolean {
  const last = state.messages.at(-1)?.message_id;
  if (last === undefined || state.seq === "0" || BigInt(state.seq) >= BigInt(seq)) return false;
  return messages.some(({ message_id }) => message_id === last);
}

function afterSnapshot(before: Transcript, { messages = [], cursor = "" }: SnapshotJson): Transcript {
  const { resyncing } = before.memory;
  const next = resyncing
    ? reuseObjects(before.messages, [...olderThan(messages, before.messages), ...messages])
    : merged(before.messages, messages);
  const memory = { ...before.memory, exact: false, resyncing: false };
  return settle({ ...before, messages: next, cursor, memory });
}

function afterResync(before: Transcript, { reason }: ResyncJson): Transcript {
  // A deleted conversation disappears at once; otherwise messages stay until the snapshot arrives.
  if (reason === "deleted") return { ...EMPTY, memory: { ...NOTHING, resyncing: true } };
  return { ...before, seq: "0", memory: { ...before.memory, exact: false, resyncing: true } };
}

function afterEvent(before: Transcript, frame: EventFrameJson): Transcript {
  const { seq = "0", cursor = before.cursor, run_id: runId = "", event = {} } = frame;
  if (BigInt(seq) <= BigInt(before.seq)) return before;
  const memory = before.memory.exact ? before.memory : { ...before.memory, exact: true };
  const next = applyEvent({ ...before, seq, cursor, memory }, runId, event);
  // A run with events is running, even if its start was trimmed.
  if (runId === "" || next.memory.ended.includes(runId)) return next;
  const created = event.run_started?.started_at;
  const waits = waitOf(next.run?.run_id === runId ? next.run : null, event);
  const status = waits ? "waiting" : "running";
  return withRun(next, { run_id: runId, status, ...(created && { created_at: created }), ...waits });
}

/** The calls a run waits for after an event; undefined when it does not wait. A decision alone does not end the wait. */
function waitOf(run: RunJson | null, event: EventJson): Pick<RunJson, "waits_for"> | undefined {
  if (event.run_waiting) return { waits_for: event.run_waiting.calls ?? [] };
  if (run?.status !== "waiting" || event.run_resumed) return undefined;
  const decided = event.tool_approval_decided ?? event.tool_result;
  const { waits_for: calls = [] } = run;
  return decided ? { waits_for: calls.filter((call) => call.tool_call_id !== decided.tool_call_id) } : run;
}

function applyEvent(before: Transcript, runId: string, event: EventJson): Transcript {
  if (event.run_started) return { ...before, outcome: undefined, activity: undefined };
  if (event.status) return { ...before, activity: event.status.text ?? "" };
  if (event.branch_changed && isIncomplete(before, event.branch_changed))
    return { ...before, cursor: "", seq: "0", memory: { ...before.memory, exact: false, resyncing: true } };
  const messages = foldMessages(before.messages, runId, event);
  const { run_finished, run_failed, run_stopped } = event;
  if (run_finished) return ended(before, messages, { run_id: runId, status: "finished", ...run_finished });
  if (run_failed) return ended(before, messages, { run_id: runId, status: "failed", ...run_failed });
  if (run_stopped) return ended(before, messages, { run_id: runId, status: "stopped", ...run_stopped });
  if (event.branch_changed) return { ...before, messages };
  return messages === before.messages ? before : { ...before, messages, activity: undefined };
}

/** Whether the event does not have the whole branch. Without a cursor it is read again, and a snapshot replaces everything. */
function isIncomplete({ messages }: Transcript, { parent_id = "", reload }: BranchChangedJson): boolean {
  if (reload) return true;
  return (
    parent_id !== "" && messages.length > 0 && !messages.some(({ message_id }) => message_id === parent_id)
  );
}

function ended(before: Transcript, messages: Transcript["messages"], outcome: RunOutcome): Transcript {
  const { run_id } = outcome;
  const run = before.run?.run_id === run_id ? null : before.run;
  const memory = { ...before.memory, ended: remember(before.memory.ended, run_id) };
  return { ...before, messages, run, outcome, activity: undefined, memory };
}

/** The run's record is written after its log, so the log takes precedence. */
function withRun(before: Transcript, run: RunJson | null): Transcript {
  const known = run && before.memory.ended.includes(run.run_id ?? "") ? null : run;
  const waits = [before.run, known].map((of) => of?.waits_for?.length ?? 0);
  const same = before.run?.run_id === known?.run_id && before.run?.status === known?.status;
  if (same && waits[0] === waits[1]) return before;
  return { ...before, run: known };
}

/** Derives from the messages whether the run continues. */
function settle(before: Transcript): Transcript {
  const streaming = before.messages.findLast(
    ({ status, run_id }) => status === "streaming" && run_id,
  )?.run_id;
  if (streaming)
    return before.run?.run_id === streaming
      ? before
      : withRun(before, { run_id: streaming, status: "running" });
  const answers = ({ run_id, role }: TranscriptMessageJson) =>
    role !== "user" && run_id === before.run?.run_id;
  return before.run && before.messages.some(answers) ? withRun(before, null) : before;
}

/** The messages that a snapshot of the newest ones continues. */
function olderThan(
  [first]: readonly TranscriptMessageJson[],
  known: readonly TranscriptMessageJson[],
): readonly TranscriptMessageJson[] {
  if (!first?.parent_id) return [];
  return known.slice(0, known.findIndex(({ message_id }) => message_id === first.parent_id) + 1);
}

/** Replaces or adds the messages of a snapshot; others stay. */
function merged(
  before: readonly TranscriptMessageJson[],
  named: readonly TranscriptMessageJson[],
): readonly TranscriptMessageJson[] {
  const byId = new Map(named.map((message) => [message.message_id, message]));
  const kept = before.map((message) => {
    const replacement = byId.get(message.message_id);
    byId.delete(message.message_id);
    return replacement ?? message;
  });
  return reuseObjects(before, [...kept, ...byId.values()]);
}

/** The newer messages, reusing equal objects of the older ones. */
function reuseObjects(
  before: readonly TranscriptMessageJson[],
  after: readonly TranscriptMessageJson[],
): readonly TranscriptMessageJson[] {
  const known = new Map(before.map((message) => [message.message_id, message]));
  const next = after.map((message) => {
    const old = known.get(message.message_id);
    return old && (old === message || JSON.stringify(old) === JSON.stringify(message)) ? old : message;
  });
  const same = next.length === before.length && next.every((message, i) => message === before[i]);
  return same ? before : next;
}

function remember(runs: readonly string[], runId: string): readonly string[] {
  return runs.includes(runId) ? runs : [...runs.slice(1 - REMEMBERED_RUNS), runId];
}
