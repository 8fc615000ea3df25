import { useKhala } from "@khala/client/react";
import { useFetch } from "../data/fetch.ts";
import { useParam } from "../router.ts";
import { Tabs } from "../ui/controls/tabs.tsx";
import { Fetched } from "../ui/feedback/fetched.tsx";
import { Empty } from "../ui/feedback/notices.tsx";
import { Ago } from "../ui/format/ago.tsx";
import { Id, shortenMiddle } from "../ui/format/id.tsx";
import { countText } from "../ui/format/numbers.ts";
import { Json } from "../ui/json/json.tsx";
import { DetailPanel, Facts } from "../ui/panel/detail_panel.tsx";
import { DocumentHistory } from "./document_history.tsx";
import { type HistoryEntry, readHistory } from "./sync_types.ts";

const EVERY_MS = 2_000;

export interface DocumentPanelProps {
  readonly docKey: string;
  readonly onClose: () => void;
}

/** One document: its current content, and its history. */
export function DocumentPanel({ docKey, onClose }: DocumentPanelProps) {
  const { ops } = useKhala();
  const [view = "document", setView] = useParam("view");
  const history = useFetch(["history", docKey], async () => readHistory(await ops.history(docKey)), EVERY_MS);
  const title = (
    <span className="mono" title={docKey}>
      {shortenMiddle(docKey, 48)}
    </span>
  );
  return (
    <DetailPanel label="Document" title={title} onClose={onClose}>
      <Fetched state={history}>
        {(entries) => (
          <>
            {entries[0] && <DocumentFacts entry={entries[0]} />}
            <Tabs
              label="Views of the document"
              selected={view}
              onSelect={(id) => setView(id === "document" ? undefined : id, { replace: true })}
              tabs={[
                {
                  id: "document",
                  label: "Document",
                  content: <Content docKey={docKey} newest={entries[0]} />,
                },
                {
                  id: "history",
                  label: "History",
                  count: entries.length,
                  content: <DocumentHistory entries={entries} />,
                },
              ]}
            />
          </>
        )}
      </Fetched>
    </DetailPanel>
  );
}

function DocumentFacts({ entry }: { readonly entry: HistoryEntry }) {
  return (
    <Facts
      facts={[
        ["Version", entry.doc_version],
        ["Watermark", countText(Number(entry.watermark))],
        ["Committed", <Ago key="at" at={entry.committed_at} />],
        entry.payload_hash !== "" && ["Hash", <Id key="hash" value={entry.payload_hash} />],
      ]}
    />
  );
}

function Content({ docKey, newest }: { readonly docKey: string; readonly newest: HistoryEntry | undefined }) {
  if (newest?.payload !== undefined) return <Json value={newest.payload} label="Document" />;
  if (newest?.op === "delete") return <Empty title="Deleted" />;
  return <FullDocument docKey={docKey} />;
}

/** A document that is too large for the journal, or whose versions have left it: fetched from the server. */
function FullDocument({ docKey }: { readonly docKey: string }) {
  const { sync } = useKhala();
  const document = useFetch(
    ["document", docKey],
    async (signal) => ({ found: await sync.read(docKey, { signal }) }),
    EVERY_MS,
  );
  return (
    <Fetched state={document}>
      {({ found }) =>
        found ? (
          <Json value={found.data} label="Document" />
        ) : (
          <Empty title="Document not found">It does not exist, or this token cannot see it.</Empty>
        )
      }
    </Fetched>
  );
}
