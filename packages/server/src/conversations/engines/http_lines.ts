import { KhalaError } from "@khala/contracts";

/** A piece of an answer that should be JSON, and the line on which it begins. */
export interface NumberedText {
  readonly line: number;
  readonly text: string;
}

/** The next bytes of an answer; undefined at its end. */
export type ReadBytes = () => Promise<Uint8Array | undefined>;

/** The lines of an answer, blank ones too. One that is longer than the limit is an error, before it is all in memory. */
export async function* linesOf(read: ReadBytes, limit: number): AsyncGenerator<NumberedText> {
  const decoder = new TextDecoder();
  let line = 1;
  let rest = "";
  const checked = (text: string): NumberedText => {
    if (text.length <= limit) return { line: line++, text: text.endsWith("\r") ? text.slice(0, -1) : text };
    const message = `Line ${line} of the engine's answer is longer than ${limit} characters. Send smaller events.`;
    throw new KhalaError("unavailable", message);
  };
  for (let bytes = await read(); bytes; bytes = await read()) {
    const parts = decoder.decode(bytes, { stream: true }).split("\n");
    parts[0] = rest + parts[0];
    rest = parts.pop()!;
    for (const part of parts) yield checked(part);
    if (rest.length > limit) checked(rest);
  }
  rest += decoder.decode();
  if (rest !== "") yield checked(rest);
}

/** Newline-delimited JSON: what each line says. Blank ones are signs of life. */
export async function* ndjsonOf(lines: AsyncIterable<NumberedText>): AsyncGenerator<NumberedText> {
  for await (const entry of lines) if (entry.text.trim() !== "") yield entry;
}

/** Server-sent events: the data of each. Comments, names and ids mean nothing here; comments are signs of life. */
export async function* sseOf(
  lines: AsyncIterable<NumberedText>,
  limit: number,
): AsyncGenerator<NumberedText> {
  let open: NumberedText | undefined;
  for await (const { line, text } of lines) {
    if (text === "") {
      if (open) yield open;
      open = undefined;
      continue;
    }
    const [, value] = /^data(?:: ?(.*))?$/s.exec(text) ?? [];
    if (!text.startsWith("data") || (value === undefined && text !== "data")) continue;
    open = open ? { line: open.line, text: `${open.text}\n${value ?? ""}` } : { line, text: value ?? "" };
    if (open.text.length > limit) {
      const message = `The event on line ${open.line} of the engine's answer is longer than ${limit} characters. Send smaller events.`;
      throw new KhalaError("unavailable", message);
    }
  }
  if (open) yield open;
}
