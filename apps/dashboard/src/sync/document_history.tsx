import { useState } from "react";
import { useParam } from "../router.ts";
import { Button } from "../ui/controls/button.tsx";
import { Ago } from "../ui/format/ago.tsx";
import { classNames } from "../ui/format/class_names.ts";
import { plural } from "../ui/format/numbers.ts";
import { JsonDiff } from "../ui/json/json_diff.tsx";
import { distance, type HistoryEntry } from "./sync_types.ts";

const AT_ONCE = 100;

/** The versions in the journal, newest first; the selected one is compared with the one before. */
export function DocumentHistory({ entries: all }: { readonly entries: readonly HistoryEntry[] }) {
  const [chosen, choose] = useParam("version");
  const [shown, setShown] = useState(AT_ONCE);
  const [upTo, setUpTo] = useState(all[0]?.watermark);
  // Versions that arrive while somebody compares are shown on request.
  const entries = upTo === undefined ? all : all.filter(({ watermark }) => distance(upTo, watermark) === 0);
  const newer = all.length - entries.length;
  if (entries.length === 0)
    return <p className="quiet history-none">No versions in the journal: retention removed them.</p>;
  const at = Math.max(
    0,
    entries.findIndex(({ doc_version }) => doc_version === chosen),
  );
  const entry = entries[at]!;
  const before = entries[at + 1];
  return (
    <div className="history">
      {newer > 0 && (
        <Button
          icon="up"
          onClick={() => {
            setUpTo(all[0]?.watermark);
            choose(undefined, { replace: true });
          }}
        >
          {plural(newer, "newer version")}
        </Button>
      )}
      <ol className="history-list" aria-label="Versions, newest first">
        {entries.slice(0, Math.max(shown, at + 1)).map((one) => (
          <li key={one.watermark}>
            <button
              type="button"
              className={classNames("history-entry", one === entry && "history-chosen")}
              aria-pressed={one === entry}
              onClick={() => choose(one.doc_version, { replace: true })}
            >
              <span>Version {one.doc_version}</span>
              <span className={one.op === "delete" ? "failed" : "quiet"}>
                {one.op === "delete" ? "deleted" : "written"}
              </span>
              <Ago at={one.committed_at} />
            </button>
          </li>
        ))}
        {entries.length > shown && (
          <li>
            <Button kind="bare" onClick={() => setShown(shown + AT_ONCE)}>
              Show older versions
            </Button>
          </li>
        )}
      </ol>
      <section className="history-diff" aria-live="polite">
        <h3>
          {before
            ? `From version ${before.doc_version} to ${entry.doc_version}`
            : `Version ${entry.doc_version}`}
        </h3>
        <Difference entry={entry} before={before} />
      </section>
    </div>
  );
}

interface DifferenceProps {
  readonly entry: HistoryEntry;
  readonly before: HistoryEntry | undefined;
}

function Difference({ entry, before }: DifferenceProps) {
  const isMissing = ({ op, payload }: HistoryEntry) => op !== "delete" && payload === undefined;
  if (isMissing(entry) || (before && isMissing(before)))
    return <p className="quiet">The journal does not have the payload of this version.</p>;
  return (
    <>
      {!before && (
        <p className="quiet">The oldest version in the journal: there is nothing to compare it with.</p>
      )}
      <JsonDiff before={before?.payload} after={entry.payload} />
    </>
  );
}
