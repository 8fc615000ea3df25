import { useKhala } from "@khala/client/react";
import { useFetch } from "../data/fetch.ts";
import { completeAll } from "../data/wire.ts";
import { useParam } from "../router.ts";
import { Icon } from "../ui/controls/icons.tsx";
import { DetailPanel, Facts, Section } from "../ui/panel/detail_panel.tsx";
import type { Column } from "../ui/table/columns.ts";
import { FilteredTable } from "../ui/table/filtered_table.tsx";

const SETTING = { name: "", value: "", default: false, secret: false, about: "" };
type Setting = Readonly<typeof SETTING>;
const NO_SETTINGS: readonly Setting[] = [];

function shownValue({ value, secret }: Setting) {
  if (value === "") return <span className="quiet">not set</span>;
  return (
    <span className="mono" title={secret ? "secret" : value}>
      {secret && <Icon name="lock" size={12} />} {value}
    </span>
  );
}

const sourceOf = (setting: Setting) => (setting.default ? "default" : "set");

const COLUMNS: readonly Column<Setting>[] = [
  {
    head: "Setting",
    width: "minmax(220px, 1.3fr)",
    cell: ({ name }) => <span className="mono">{name}</span>,
  },
  { head: "Value", width: "minmax(110px, 1fr)", cell: shownValue },
  {
    head: "Source",
    width: 70,
    wideOnly: true,
    cell: (setting) => <span className={setting.default ? "quiet" : "strong"}>{sourceOf(setting)}</span>,
  },
  {
    head: "Description",
    width: "minmax(160px, 2.4fr)",
    wideOnly: true,
    cell: ({ about }) => <span title={about}>{about}</span>,
  },
];

const KEYS = [
  { name: "name", about: "Part of the name" },
  { name: "is", about: "Source", values: ["set", "default", "secret"] },
];

const rowKey = ({ name }: Setting) => name;
const fields = (setting: Setting) => ({
  name: setting.name,
  value: setting.value,
  about: setting.about,
  is: `${sourceOf(setting)}${setting.secret ? " secret" : ""}`,
});

/** The settings in effect. */
export function Settings() {
  const { ops } = useKhala();
  const state = useFetch(["config"], async () => completeAll(SETTING, (await ops.config()).settings));
  const all = state.data ?? NO_SETTINGS;
  const [item, setItem] = useParam("item");
  const selected = all.find(({ name }) => name === item);
  return (
    <FilteredTable
      label="Settings in effect"
      state={state}
      columns={COLUMNS}
      rows={all}
      rowKey={rowKey}
      fields={fields}
      keys={KEYS}
      noMatch="No setting matches the filter"
      selected={selected?.name}
      onSelect={setItem}
      panel={
        selected && (
          <DetailPanel
            title={<code>{selected.name}</code>}
            label={selected.name}
            onClose={() => setItem(undefined)}
          >
            <Facts
              facts={[
                ["Value", shownValue(selected)],
                ["Source", sourceOf(selected)],
              ]}
            />
            <Section title="Description">{selected.about}</Section>
            <p className="quiet panel-links">
              Settings of this server. They are read from the environment at startup.
            </p>
          </DetailPanel>
        )
      }
    />
  );
}
