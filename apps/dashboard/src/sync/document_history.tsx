import { useState } from "react";
import { Ago } from "../parts/ago.tsx";
import { Button } from "../parts/button.tsx";
import { classNames } from "../parts/class_names.ts";
import { Facts } from "../parts/detail_panel.tsx";
import { Id } from "../parts/id.tsx";
import { JsonDiff } from "../parts/json_diff.tsx";
import { countText } from "../parts/numbers.ts";
import { useParam } from "../router.ts";
import { syncWords } from "../strings/sync.ts";
import { between, type HistoryEntry } from "./sync_types.ts";

const words = syncWords.document;
const AT_ONCE = 100;

/** Where a version is, for the head of the panel. */
export function DocumentFacts({ entry }: { readonly entry: HistoryEntry }) {
  return (
    <Facts
      facts={[
        { name: words.versionName, value: entry.version },
        { name: words.watermark, value: countText(Number(entry.watermark)) },
        { name: words.committed, value: <Ago at={entry.committedAt} /> },
        entry.hash !== "" && { name: words.hash, value: <Id value={entry.hash} /> },
      ]}
    />
  );
}

/** The versions that the journal has, newest first; the chosen one is compared with the one before. */
export function DocumentHistory({ entries: all }: { readonly entries: readonly HistoryEntry[] }) {
  const [chosen, choose] = useParam("version");
  const [shown, setShown] = useState(AT_ONCE);
  const [upTo, setUpTo] = useState(all[0]?.watermark);
  // Versions that come while somebody compares wait until they are asked for.
  const entries = upTo === undefined ? all : all.filter(({ watermark }) => between(upTo, watermark) === 0);
  const newer = all.length - entries.length;
  if (entries.length === 0) return <p className="quiet history-none">{words.emptyHistory}</p>;
  const wanted = entries.findIndex(({ version }) => version === chosen);
  const at = Math.max(0, wanted);
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
          {words.newer(newer)}
        </Button>
      )}
      <ol className="history-list" aria-label={words.historyLabel}>
        {entries.slice(0, Math.max(shown, at + 1)).map((one) => (
          <li key={one.watermark}>
            <button
              type="button"
              className={classNames("history-entry", one === entry && "history-chosen")}
              aria-pressed={one === entry}
              onClick={() => choose(one.version, { replace: true })}
            >
              <span>{words.version(one.version)}</span>
              <span className={one.op === "delete" ? "failed" : "quiet"}>
                {one.op === "delete" ? words.deleted : words.upsert}
              </span>
              <Ago at={one.committedAt} />
            </button>
          </li>
        ))}
        {entries.length > shown && (
          <li>
            <Button kind="bare" onClick={() => setShown(shown + AT_ONCE)}>
              {words.older}
            </Button>
          </li>
        )}
      </ol>
      <section className="history-diff" aria-live="polite">
        <h3>{before ? words.diff(before.version, entry.version) : words.version(entry.version)}</h3>
        <Difference entry={entry} before={before} />
      </section>
    </div>
  );
}

function Difference({
  entry,
  before,
}: {
  readonly entry: HistoryEntry;
  readonly before: HistoryEntry | undefined;
}) {
  const isMissing = ({ op, payload }: HistoryEntry) => op !== "delete" && payload === undefined;
  if (isMissing(entry) || (before && isMissing(before))) return <p className="quiet">{words.noPayload}</p>;
  return (
    <>
      {!before && <p className="quiet">{words.first}</p>}
      <JsonDiff before={before?.payload} after={entry.payload} />
    </>
  );
}
