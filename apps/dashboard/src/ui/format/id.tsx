import { Icon } from "../controls/icons.tsx";
import { useCopy } from "../hooks.ts";

/** Characters of the end: where there is no room, more of the head is clipped, since ids differ at their end. */
const TAIL = 8;

/** An id, shortened in the middle to `length` characters; a click copies all of it. */
export function Id({ value, length = 16 }: { readonly value: string; readonly length?: number }) {
  const [copied, copy] = useCopy();
  const isShort = value.length <= length;
  return (
    <button type="button" className="id mono" title={value} onClick={() => copy(value)}>
      <span className="id-text">
        {isShort ? (
          // One text, so that it is read as one word; its head is what is cut.
          <span className="id-head id-short">
            <bdi>{value}</bdi>
          </span>
        ) : (
          <>
            <span className="id-head">{value.slice(0, length - TAIL - 1)}</span>
            <span>…{value.slice(-TAIL)}</span>
          </>
        )}
      </span>
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
