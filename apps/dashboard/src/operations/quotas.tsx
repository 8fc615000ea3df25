import { useKhala } from "@khala/client/react";
import { useFetch } from "../data/fetch.ts";
import { completeAll } from "../data/wire.ts";
import { Empty } from "../ui/feedback/notices.tsx";
import type { Column } from "../ui/table/columns.ts";
import { FilteredTable } from "../ui/table/filtered_table.tsx";

const EVERY_MS = 5_000;
/** An absent figure is not known. */
const UNKNOWN = -1;
const QUOTA = { org_id: "", name: "", about: "", limit: 0, in_use: UNKNOWN, rejected: 0 };
type QuotaUse = Readonly<typeof QUOTA>;
const NO_QUOTAS: readonly QuotaUse[] = [];
const number = (value: number) => value.toLocaleString("en");

const COLUMNS: readonly Column<QuotaUse>[] = [
  { head: "Org", width: "minmax(70px, 1fr)", cell: ({ org_id }) => org_id },
  { head: "Quota", width: "minmax(116px, 1fr)", cell: ({ name }) => <span className="mono">{name}</span> },
  {
    head: "In use",
    width: "minmax(80px, 140px)",
    cell: ({ in_use }) => (in_use === UNKNOWN ? "not known" : number(in_use)),
  },
  { head: "Limit", width: 140, wideOnly: true, cell: ({ limit }) => (limit === 0 ? "none" : number(limit)) },
  { head: "Refused", width: "minmax(60px, 90px)", cell: ({ rejected }) => number(rejected) },
  { head: "Of", width: "minmax(160px, 2fr)", wideOnly: true, cell: ({ about }) => about },
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
