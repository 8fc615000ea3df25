/** The longest text of an event. A character has at most six bytes in JSON, and an entry of the log 256 KiB. */
export const MAX_TEXT_LENGTH = 32 << 10;

/** A text in pieces that fit into an entry of the log. No character is cut. */
export function splitText(text: string): string[] {
  const pieces: string[] = [];
  for (let at = 0; at < text.length; ) {
    let end = Math.min(at + MAX_TEXT_LENGTH, text.length);
    const isPair = /[\ud800-\udbff]/.test(text[end - 1]!) && /[\udc00-\udfff]/.test(text[end] ?? "");
    if (isPair) end--;
    pieces.push(text.slice(at, end));
    at = end;
  }
  return pieces.length > 0 ? pieces : [text];
}
