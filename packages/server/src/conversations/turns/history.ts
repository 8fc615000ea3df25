import type { PartJson, TranscriptMessageJson } from "@khala/contracts/conversation/v1";
import type { MessageStore } from "../messages/message_store.ts";
import type { ClaimedRun } from "../queue/admission.ts";

const HISTORY = { messages: 200, bytes: 1 << 20 };
/** Takes the place of what is left out, so that the model does not take the rest for all of the message. */
const LEFT_OUT = "[The beginning of this message is left out, because it is too long.]\n";

/** The newest messages before a turn, as many as fit: of a newest one that does not fit, its end. */
export async function readHistory(
  messages: Pick<MessageStore, "upTo">,
  run: ClaimedRun,
): Promise<TranscriptMessageJson[]> {
  if (run.parentId === null) return [];
  const { messages: before } = await messages.upTo(run, run.parentId, HISTORY);
  let left = HISTORY.bytes;
  let from = before.length;
  for (; from > 0; from--) {
    left -= JSON.stringify(before[from - 1]).length;
    if (left < 0) break;
  }
  const newest = before.at(-1);
  return newest && from === before.length ? [endOf(newest)] : before.slice(from);
}

/** A message with the last of its parts that fit; of a text that does not, its end. */
function endOf(message: TranscriptMessageJson): TranscriptMessageJson {
  const { parts = [], ...rest } = message;
  let left = HISTORY.bytes - JSON.stringify(rest).length - LEFT_OUT.length;
  let from = parts.length;
  for (; from > 0; from--) {
    const size = JSON.stringify(parts[from - 1]).length;
    if (size > left) break;
    left -= size;
  }
  const cut: PartJson = { text: LEFT_OUT + endOfText(parts[from - 1]?.text ?? "", left) };
  return { ...rest, parts: [cut, ...parts.slice(from)] };
}

/** The end of a text whose JSON has at most this length. */
function endOfText(text: string, length: number): string {
  let end = text;
  for (let most = length; JSON.stringify(end).length > length; most = Math.floor(most / 2))
    end = most > 0 ? text.slice(-most).toWellFormed() : "";
  return end;
}
