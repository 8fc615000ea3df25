import { useMemo, useState } from "react";
import { classNames } from "../format/class_names.ts";
import { plural } from "../format/numbers.ts";
import { type DiffLine, diffLines, jsonLines } from "./diff_lines.ts";
import "./json.css";

const CONTEXT = 3;

export interface JsonDiffProps {
  /** Undefined: it did not exist. */
  readonly before: unknown;
  /** Undefined: it was deleted. */
  readonly after: unknown;
}

type Piece = readonly DiffLine[] | { readonly folded: readonly DiffLine[] };

/** The diff of two JSON values, line by line; long unchanged parts are folded. */
export function JsonDiff({ before, after }: JsonDiffProps) {
  const { lines, isRough } = useMemo(() => {
    const [old, fresh] = [jsonLines(before), jsonLines(after)];
    const found = diffLines(old, fresh);
    const rough = () => [
      ...old.map((text): DiffLine => ({ kind: "removed", text })),
      ...fresh.map((text): DiffLine => ({ kind: "added", text })),
    ];
    return { lines: found ?? rough(), isRough: found === undefined };
  }, [before, after]);
  const pieces = useMemo(() => fold(lines), [lines]);
  if (lines.every((line) => line.kind === "same")) return <p className="quiet">No difference</p>;
  return (
    <div className="json-diff mono">
      {isRough && (
        <p className="quiet">
          Too large for a line-by-line diff: the old version is followed by the new one.
        </p>
      )}
      {pieces.map((piece, index) =>
        "folded" in piece ? (
          // biome-ignore lint/suspicious/noArrayIndexKey: pieces have no identity but their position.
          <Folded key={index} lines={piece.folded} />
        ) : (
          // biome-ignore lint/suspicious/noArrayIndexKey: pieces have no identity but their position.
          <Lines key={index} lines={piece} />
        ),
      )}
    </div>
  );
}

const SIGNS = { same: " ", added: "+", removed: "−" } as const;

function Lines({ lines }: { readonly lines: readonly DiffLine[] }) {
  return lines.map((line, index) => (
    // biome-ignore lint/suspicious/noArrayIndexKey: lines have no identity but their position.
    <div key={index} className={classNames("diff-line", line.kind !== "same" && `diff-${line.kind}`)}>
      <span className="diff-sign" aria-hidden="true">
        {SIGNS[line.kind]}
      </span>
      {line.kind !== "same" && <span className="visually-hidden">{line.kind} </span>}
      {line.text}
    </div>
  ));
}

function Folded({ lines }: { readonly lines: readonly DiffLine[] }) {
  const [isOpen, setOpen] = useState(false);
  if (isOpen) return <Lines lines={lines} />;
  return (
    <button type="button" className="diff-folded" onClick={() => setOpen(true)}>
      {plural(lines.length, "unchanged line")}
    </button>
  );
}

function fold(lines: readonly DiffLine[]): Piece[] {
  const pieces: Piece[] = [];
  let at = 0;
  while (at < lines.length) {
    let end = at;
    const isSame = lines[at]!.kind === "same";
    while (end < lines.length && (lines[end]!.kind === "same") === isSame) end++;
    const run = lines.slice(at, end);
    if (isSame && run.length > 2 * CONTEXT + 1) {
      const head = at === 0 ? 0 : CONTEXT;
      const tail = end === lines.length ? 0 : CONTEXT;
      pieces.push(
        run.slice(0, head),
        { folded: run.slice(head, run.length - tail) },
        run.slice(run.length - tail),
      );
    } else pieces.push(run);
    at = end;
  }
  return pieces;
}
