import { useKhala } from "@khala/client/react";
import { useFetch } from "../data/fetch.ts";
import { completeAll } from "../data/wire.ts";
import { Empty } from "../ui/feedback/notices.tsx";
import { Ago } from "../ui/format/ago.tsx";
import type { Column } from "../ui/table/columns.ts";
import { FilteredTable } from "../ui/table/filtered_table.tsx";

const EVERY_MS = 5_000;
const LIMIT = 500;
const ENTRY = { id: "", at: "", org_id: "", subject: "", action: "", resource: "", address: "", outcome: "" };
type Entry = Readonly<typeof ENTRY>;
const NO_ENTRIES: readonly Entry[] = [];

const COLUMNS: readonly Column<Entry>[] = [
  { head: "When", width: 72, cell: ({ at }) => <Ago at={at} /> },
  { head: "Subject", width: "minmax(60px, 1fr)", cell: ({ subject }) => subject },
  {
    head: "Action",
    width: "minmax(104px, 1fr)",
    cell: ({ action }) => <span className="mono">{action}</span>,
  },
  {
    head: "Resource",
    width: "minmax(160px, 2fr)",
    wideOnly: true,
    cell: ({ resource }) => (
      <span className="mono" title={resource}>
        {resource}
      </span>
    ),
  },
  {
    head: "From",
    width: 120,
    wideOnly: true,
    cell: ({ address }) => <span className="mono">{address}</span>,
  },
  {
    head: "Outcome",
    width: "minmax(70px, 0.8fr)",
    cell: ({ outcome }) => <span className="mono">{outcome}</span>,
  },
];

const KEYS = [
  { name: "subject", about: "Subject" },
  { name: "action", about: "Action, such as dead_letter.replay" },
  { name: "outcome", about: "ok, unknown, or an error code" },
];

const rowKey = ({ id }: Entry) => id;
const fields = ({ subject, action, outcome, resource }: Entry) => ({ subject, action, outcome, resource });

/** The audit log: who did what to which resource, newest first. */
export function AuditLog() {
  const { ops } = useKhala();
  const state = useFetch(
    ["audit"],
    async () => completeAll(ENTRY, (await ops.audit({ limit: LIMIT })).entries),
    EVERY_MS,
  );
  return (
    <FilteredTable
      label="Audit log"
      state={state}
      columns={COLUMNS}
      rows={state.data ?? NO_ENTRIES}
      rowKey={rowKey}
      fields={fields}
      keys={KEYS}
      noMatch="No entry matches the filter"
      empty={
        <Empty title="No entries" icon="operations">
          Tokens minted and revoked, agents paused, replays, approvals and deletes are recorded here.
        </Empty>
      }
    />
  );
}
