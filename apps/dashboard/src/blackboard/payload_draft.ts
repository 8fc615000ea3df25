/** What a text area holds: JSON that can be sent, or why it is none. */
export type PayloadDraft =
  | { readonly ok: true; readonly value: unknown; readonly changed: boolean }
  | { readonly ok: false; readonly message: string; readonly line: number };

/** How a payload is shown for editing. */
export const payloadText = (payload: unknown): string => JSON.stringify(payload ?? null, null, 2);

/** Reads an edited payload; of a mistake it tells the line. */
export function readPayload(text: string, original: string): PayloadDraft {
  try {
    return { ok: true, value: JSON.parse(text) as unknown, changed: text !== original };
  } catch (error) {
    const before = text.slice(0, placeOfMistake(text));
    return { ok: false, message: summary(error), line: before.split("\n").length };
  }
}

/** Engines quote the whole text in some of their messages; its beginning says enough. */
function summary(error: unknown): string {
  const message = error instanceof Error ? error.message : String(error);
  return message
    .replace(/,? (?:\.\.\.)?"[\s\S]*" is not valid JSON$/, "")
    .replace(/ in JSON at position.*$/, "");
}

/** Engines do not always say where a mistake is, so it is looked for: the first place where going on cannot mend it. */
function placeOfMistake(text: string): number {
  let good = 0;
  let bad = text.length + 1;
  while (bad - good > 1) {
    const middle = Math.floor((good + bad) / 2);
    if (isBeginning(text.slice(0, middle))) good = middle;
    else bad = middle;
  }
  return good;
}

/** Whether a text is JSON, or could become JSON by going on. */
function isBeginning(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch (error) {
    const message = String(error);
    const at = /position (\d+)/.exec(message)?.[1];
    return /end of JSON|Unterminated/.test(message) || Number(at) === text.length;
  }
}
