import { useKhala } from "@khala/client/react";
import { useFetch } from "../data/fetch.ts";
import { completeAll } from "../data/wire.ts";
import { links, useParam } from "../router.ts";
import { Empty } from "../ui/feedback/notices.tsx";
import { Ago } from "../ui/format/ago.tsx";
import { Id } from "../ui/format/id.tsx";
import { DetailPanel, Facts, Section, TextLink } from "../ui/panel/detail_panel.tsx";
import type { Column } from "../ui/table/columns.ts";
import { FilteredTable } from "../ui/table/filtered_table.tsx";

const EVERY_MS = 3_000;
const LIMIT = 200;
const FAILED_RUN = {
  error_id: "",
  run_id: "",
  conv_id: "",
  subject: "",
  failed_at: "",
  code: "",
  message: "",
  detail: "",
};
type FailedRun = Readonly<typeof FAILED_RUN>;
const NO_RUNS: readonly FailedRun[] = [];

const COLUMNS: readonly Column<FailedRun>[] = [
  { head: "Failed", width: 72, cell: ({ failed_at }) => <Ago at={failed_at} /> },
  {
    head: "Cause",
    width: "minmax(130px, 3fr)",
    cell: ({ detail, message }) => {
      const [cause = ""] = (detail || message).split("\n");
      return <span title={cause}>{cause}</span>;
    },
  },
  {
    head: "Code",
    width: "minmax(110px, 1fr)",
    cell: ({ code }) => <span className="mono">{code}</span>,
  },
  { head: "Subject", width: "minmax(80px, 1fr)", wideOnly: true, cell: ({ subject }) => subject },
  {
    head: "Error id",
    width: 150,
    wideOnly: true,
    cell: ({ error_id }) => <Id value={error_id} length={14} />,
  },
];

const KEYS = [
  { name: "code", about: "Error code" },
  { name: "subject", about: "Subject" },
  { name: "id", about: "Error id that a user reported" },
  { name: "conversation", about: "Conversation id" },
];

const rowKey = ({ error_id }: FailedRun) => error_id;
const fields = ({ error_id, conv_id, subject, code, message, detail }: FailedRun) => ({
  id: error_id,
  conversation: conv_id,
  subject,
  code,
  message,
  detail,
});

/** The runs that failed, each with what the end user saw and the exception. */
export function FailedRuns() {
  const { ops } = useKhala();
  const [item, setItem] = useParam("item");
  const state = useFetch(
    ["failed-runs"],
    async () => completeAll(FAILED_RUN, (await ops.failedRuns({ limit: LIMIT })).runs),
    EVERY_MS,
  );
  const all = state.data ?? NO_RUNS;
  const listed = all.find(({ error_id }) => error_id === item);
  // A reported error may be older than the list.
  const older = useFetch(
    item === undefined || state.data === undefined || listed ? undefined : ["failed-run", item],
    async () => completeAll(FAILED_RUN, (await ops.failedRuns({ error_id: item! })).runs)[0] ?? null,
  );
  const selected = listed ?? older.data ?? undefined;
  return (
    <FilteredTable
      label="Failed runs"
      state={state}
      columns={COLUMNS}
      rows={all}
      rowKey={rowKey}
      fields={fields}
      keys={KEYS}
      noMatch="No failed run matches the filter"
      selected={selected?.error_id}
      onSelect={setItem}
      panel={selected && <FailedRunPanel run={selected} onClose={() => setItem(undefined)} />}
      empty={
        <Empty title="No failed runs" icon="ok">
          Runs that end with an error are listed here with the exception. Users see its error id only.
        </Empty>
      }
    />
  );
}

function FailedRunPanel({ run, onClose }: { readonly run: FailedRun; readonly onClose: () => void }) {
  return (
    <DetailPanel title="Failed run" label="Failed run" onClose={onClose}>
      <Facts
        facts={[
          ["Failed", <Ago key="at" at={run.failed_at} />],
          ["Code", <code key="code">{run.code}</code>],
          ["Error id", <Id key="error" value={run.error_id} length={28} />],
          ["Run", <Id key="run" value={run.run_id} length={28} />],
          ["Subject", run.subject],
          [
            "Conversation",
            <TextLink key="conv" mono href={links.conversation(run.conv_id)}>
              {run.conv_id}
            </TextLink>,
          ],
          [
            "Traces",
            <TextLink key="traces" href={links.tracesOf(run.run_id)}>
              Traces of this run
            </TextLink>,
          ],
        ]}
      />
      <Section title="Exception">
        <pre className="exception">{run.detail || "The engine gave no exception."}</pre>
      </Section>
      <Section title="What the user saw">{run.message}</Section>
    </DetailPanel>
  );
}
