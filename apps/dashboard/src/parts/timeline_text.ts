/** Of a character at the size of these texts, on average and generously. */
const CHARACTER = 6.2;
const GAP = 8;

/** How wide the part with the bars is, in a timeline as wide as this: timeline.css gives the rest to the names. */
export function trackWidth(width: number): number {
  const inside = width - 32;
  return Math.max(0, inside - Math.max(110, inside * 0.36) - 12);
}

/** Whether a text goes before its bar, given the pixels on either side: after it where it fits, else where there is more room. */
export function isTextBefore(text: string, before: number, after: number): boolean {
  return text.length * CHARACTER + GAP > after && before > after;
}
