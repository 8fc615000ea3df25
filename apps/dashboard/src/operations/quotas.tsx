import { useKhala } from "@khala/client/react";
import { useFetch } from "../data/fetch.ts";
import { completeAll } from "../data/wire.ts";
import { Empty } from "../ui/feedback/notices.tsx";
import { bytesText, countText } from "../ui/format/numbers.ts";
import type { Column } from "../ui/table/columns.ts";
import { FilteredTable } from "../ui/table/filtered_table.tsx";

const EVERY_MS = 5_000;
/** An absent figure is not known. */
const UNKNOWN = -1;
const QUOTA = { org_id: "", name: "", about: "", limit: 0, in_use: UNKNOWN, rejected: 0 };
type QuotaUse = Readonly<typeof QUOTA>;
const NO_QUOTAS: readonly QuotaUse[] = [];
/** An amount in the unit of its quota. */
const amount = (quota: string, value: number) =>
  quota.endsWith("_bytes") ? bytesText(value) : countText(value);

const COLUMNS: readonly Column<QuotaUse>[] = [
  { head: "Org", width: "minmax(56px, 1fr)", cell: ({ org_id }) => org_id },
  { head: "Quota", width: "minmax(116px, 1fr)", cell: ({ name }) => <span className="mono">{name}</span> },
  {
    head: "In use",
    width: "minmax(64px, 120px)",
    align: "end",
    cell: ({ name, in_use }) => (in_use === UNKNOWN ? "not known" : amount(name, in_use)),
  },
  {
    head: "Limit",
    width: 120,
    align: "end",
    wideOnly: true,
    cell: ({ name, limit }) => (limit === 0 ? "none" : amount(name, limit)),
  },
  {
    head: "Refused",
    width: "minmax(52px, 90px)",
    align: "end",
    cell: ({ rejected }) => (
      <span className={rejected > 0 ? "failed" : undefined}>{countText(rejected)}</span>
    ),
  },
  { head: "What counts", width: "minmax(160px, 2fr)", wideOnly: true, cell: ({ about }) => about },
];

const KEYS = [
  { name: "org", about: "Org" },
  { name: "quota", about: "Quota, such as waiting_tasks" },
];

const rowKey = ({ org_id, name }: QuotaUse) => `${name} ${org_id}`;
const fields = ({ org_id, name, about }: QuotaUse) => ({ org: org_id, quota: name, about });

/** What orgs use of their quotas, and how often this server has refused them. */
export function Quotas() {
  const { ops } = useKhala();
  const state = useFetch(["quotas"], async () => completeAll(QUOTA, (await ops.quotas()).quotas), EVERY_MS);
  return (
    <FilteredTable
      label="Quotas"
      state={state}
      columns={COLUMNS}
      rows={state.data ?? NO_QUOTAS}
      rowKey={rowKey}
      fields={fields}
      keys={KEYS}
      noMatch="No quota matches the filter"
      empty={
        <Empty title="Nothing in use" icon="operations">
          Orgs appear here once they have sockets, runs, tasks or stored data.
        </Empty>
      }
    />
  );
}
