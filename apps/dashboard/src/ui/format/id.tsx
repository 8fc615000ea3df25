import { Icon } from "../controls/icons.tsx";
import { useCopy } from "../hooks.ts";

/** An id, shortened in the middle to `length` characters; a click copies all of it. */
export function Id({ value, length = 16 }: { readonly value: string; readonly length?: number }) {
  const [copied, copy] = useCopy();
  return (
    <button type="button" className="id mono" title={value} onClick={() => copy(value)}>
      <span>{shortenMiddle(value, length)}</span>
      <Icon name={copied ? "check" : "copy"} size={12} />
      <span className="visually-hidden">, Copy</span>
      <span className="visually-hidden" role="status">
        {copied ? "Copied" : ""}
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
