import { useKhala } from "@khala/client/react";
import { Answered } from "../parts/answered.tsx";
import { useAsk } from "../parts/asking.ts";
import { DetailPanel } from "../parts/detail_panel.tsx";
import { shortenMiddle } from "../parts/id.tsx";
import { Json } from "../parts/json.tsx";
import { Empty, Failure, Loading } from "../parts/states.tsx";
import { Tabs } from "../parts/tabs.tsx";
import { useParam } from "../router.ts";
import { syncWords } from "../strings/sync.ts";
import { DocumentFacts, DocumentHistory } from "./document_history.tsx";
import { readHistory } from "./sync_types.ts";

const words = syncWords.document;
const EVERY_MS = 2_000;

export interface DocumentPanelProps {
  readonly docKey: string;
  readonly onClose: () => void;
}

/** One document: as it is, and how it came to be so. */
export function DocumentPanel({ docKey, onClose }: DocumentPanelProps) {
  const { ops } = useKhala();
  const [view = "document", setView] = useParam("view");
  const asked = useAsk(`history ${docKey}`, async () => readHistory(await ops.history(docKey)), {
    everyMs: EVERY_MS,
  });
  const entries = asked.data ?? [];
  const [newest] = entries;

  return (
    <DetailPanel
      label={words.title}
      title={
        <span className="mono" title={docKey}>
          {shortenMiddle(docKey, 48)}
        </span>
      }
      onClose={onClose}
    >
      {asked.error && !asked.data ? (
        <Failure error={asked.error} onRetry={asked.again} />
      ) : asked.loading ? (
        <Loading />
      ) : (
        <>
          {asked.error && <Failure error={asked.error} inline onRetry={asked.again} />}
          {newest && <DocumentFacts entry={newest} />}
          <Tabs
            label={words.tabsLabel}
            selected={view}
            onSelect={(id) => setView(id === "document" ? undefined : id, { replace: true })}
            tabs={[
              {
                id: "document",
                label: words.json,
                content:
                  newest?.payload !== undefined ? (
                    <Json value={newest.payload} label={words.json} />
                  ) : newest?.op === "delete" ? (
                    <Empty title={words.deleted} />
                  ) : (
                    <ReadDocument docKey={docKey} />
                  ),
              },
              {
                id: "history",
                label: words.history,
                count: entries.length,
                content: <DocumentHistory entries={entries} />,
              },
            ]}
          />
        </>
      )}
    </DetailPanel>
  );
}

/** A document whose versions have left the journal, or one that is too large for it: the server has it whole. */
function ReadDocument({ docKey }: { readonly docKey: string }) {
  const { sync } = useKhala();
  const asked = useAsk(
    `document ${docKey}`,
    async (signal) => ({ found: await sync.read(docKey, { signal }) }),
    { everyMs: EVERY_MS },
  );
  return (
    <Answered asked={asked}>
      {({ found }) =>
        found ? (
          <Json value={found.data} label={words.json} />
        ) : (
          <Empty title={words.goneTitle}>{words.gone}</Empty>
        )
      }
    </Answered>
  );
}
