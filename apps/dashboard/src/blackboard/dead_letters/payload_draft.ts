/** The content of the editor: valid JSON, or what is wrong with it. */
export type PayloadDraft =
  | { readonly ok: true; readonly value: unknown; readonly changed: boolean }
  | { readonly ok: false; readonly message: string; readonly line: number };

/** The text of a payload for editing. */
export const payloadText = (payload: unknown): string => JSON.stringify(payload ?? null, null, 2);

/** Parses an edited payload; an error has its line. */
export function parsePayload(text: string, original: string): PayloadDraft {
  try {
    return { ok: true, value: JSON.parse(text) as unknown, changed: text !== original };
  } catch (error) {
    const before = text.slice(0, errorPosition(text));
    return { ok: false, message: summary(error), line: before.split("\n").length };
  }
}

/** Browsers quote the whole text in some of their messages; the beginning is enough. */
function summary(error: unknown): string {
  const message = error instanceof Error ? error.message : String(error);
  return message
    .replace(/,? (?:\.\.\.)?"[\s\S]*" is not valid JSON$/, "")
    .replace(/ in JSON at position.*$/, "");
}

/** Browsers do not always report the position, so it is searched: the end of the longest valid prefix. */
function errorPosition(text: string): number {
  let good = 0;
  let bad = text.length + 1;
  while (bad - good > 1) {
    const middle = Math.floor((good + bad) / 2);
    if (isPrefix(text.slice(0, middle))) good = middle;
    else bad = middle;
  }
  return good;
}

/** Whether a text is JSON, or could become JSON when continued. */
function isPrefix(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch (error) {
    const message = String(error);
    const at = /position (\d+)/.exec(message)?.[1];
    return /end of JSON|Unterminated/.test(message) || Number(at) === text.length;
  }
}
