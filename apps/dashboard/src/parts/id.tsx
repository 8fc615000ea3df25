import { partWords } from "../strings/parts.ts";
import { useCopy } from "./copying.ts";
import { Icon } from "./icons.tsx";

export interface IdProps {
  readonly value: string;
  /** How many characters are shown at most. */
  readonly length?: number;
}

/** An id in mono, shortened in the middle, copied whole on click. */
export function Id({ value, length = 16 }: IdProps) {
  const [copied, copy] = useCopy();
  return (
    <button type="button" className="id mono" title={value} onClick={() => copy(value)}>
      <span>{shortenMiddle(value, length)}</span>
      <Icon name={copied ? "check" : "copy"} size={12} />
      <span className="visually-hidden">, {partWords.copy}</span>
      <span className="visually-hidden" role="status">
        {copied ? partWords.copied : ""}
      </span>
    </button>
  );
}

/** The beginning and the end of a text. */
export function shortenMiddle(text: string, length: number): string {
  if (text.length <= length) return text;
  const head = Math.ceil((length - 1) / 2);
  return `${text.slice(0, head)}…${text.slice(text.length - (length - 1 - head))}`;
}
