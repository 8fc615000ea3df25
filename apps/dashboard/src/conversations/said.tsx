import { memo } from "react";

/** Long enough that few are needed, short enough that the browser can draw one anew with every word. */
const CHUNK = 4_000;

/** Text as it was said. A long one is drawn in pieces, so that a word more does not draw all of it again. */
export function Said({ text, className = "said" }: { readonly text: string; readonly className?: string }) {
  if (text.length <= CHUNK) return <p className={className}>{text}</p>;
  return (
    <p className={className}>
      {chunksOf(text).map((chunk, index) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: text is only ever added at the end
        <Chunk key={index} text={chunk} />
      ))}
    </p>
  );
}

const Chunk = memo(function Chunk({ text }: { readonly text: string }) {
  return <span>{text}</span>;
});

/** Pieces that come to the same text; each but the last stays the same while the text grows. */
export function chunksOf(text: string): readonly string[] {
  const chunks: string[] = [];
  let start = 0;
  while (text.length - start > CHUNK) {
    const blank = text.lastIndexOf(" ", start + CHUNK);
    const end = blank > start ? blank : start + CHUNK;
    chunks.push(text.slice(start, end));
    start = end;
  }
  chunks.push(text.slice(start));
  return chunks;
}
