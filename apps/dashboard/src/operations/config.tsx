import { useKhala } from "@khala/client/react";
import { useAsk } from "../parts/asking.ts";
import { DetailPanel, Facts, Section, WithPanel } from "../parts/detail_panel.tsx";
import { Icon } from "../parts/icons.tsx";
import { Empty, Failure, Loading } from "../parts/states.tsx";
import { type Column, Table } from "../parts/table.tsx";
import { useParam } from "../router.ts";
import { opsWords } from "../strings/operations.ts";
import { FilterBar, useFilter } from "./filtered.tsx";
import { readSettings, type Setting } from "./ops_read.ts";

const words = opsWords.config;
const NONE: readonly Setting[] = [];

function shownValue({ value, isSecret }: Setting) {
  if (value === "") return <span className="quiet">{words.unset}</span>;
  return (
    <span className="mono" title={isSecret ? words.secret : value}>
      {isSecret && <Icon name="lock" size={12} />} {value}
    </span>
  );
}

const origin = ({ isDefault }: Setting) => (isDefault ? words.isDefault : words.isSet);

const COLUMNS: readonly Column<Setting>[] = [
  {
    id: "name",
    head: words.name,
    cell: ({ name }) => <span className="mono">{name}</span>,
    width: "minmax(220px, 1.3fr)",
  },
  { id: "value", head: words.value, cell: shownValue, width: "minmax(110px, 1fr)" },
  {
    id: "from",
    head: words.from,
    cell: (setting) => <span className={setting.isDefault ? "quiet" : "strong"}>{origin(setting)}</span>,
    width: 70,
    wideOnly: true,
  },
  {
    id: "about",
    head: words.about,
    cell: ({ about }) => <span title={about}>{about}</span>,
    width: "minmax(160px, 2.4fr)",
    wideOnly: true,
  },
];

const KEYS = [
  { name: "name", about: words.keys.name },
  { name: "is", about: words.keys.is, values: ["set", "default", "secret"] },
];

const rowKey = ({ name }: Setting) => name;
const fields = (setting: Setting) => ({
  name: setting.name,
  value: setting.value,
  about: setting.about,
  is: `${origin(setting)}${setting.isSecret ? ` ${words.secret}` : ""}`,
});

/** The settings that are in effect. */
export function Config() {
  const { ops } = useKhala();
  const asked = useAsk("config", async () => readSettings(await ops.config()));
  const all = asked.data ?? NONE;
  const { rows } = useFilter(all, fields);
  const [item, setItem] = useParam("item");
  const selected = all.find(({ name }) => name === item);
  if (asked.loading) return <Loading />;
  if (asked.error) return <Failure error={asked.error} onRetry={asked.again} />;
  return (
    <>
      <FilterBar label={words.label} keys={KEYS} shown={rows.length} all={all.length} />
      <WithPanel
        panel={
          selected && (
            <DetailPanel
              title={<code>{selected.name}</code>}
              label={selected.name}
              onClose={() => setItem(undefined)}
            >
              <Facts
                facts={[
                  { name: words.value, value: shownValue(selected) },
                  { name: words.from, value: origin(selected) },
                ]}
              />
              <Section title={words.about}>{selected.about}</Section>
              <p className="quiet panel-links">{words.note}</p>
            </DetailPanel>
          )
        }
      >
        <Table
          label={words.label}
          columns={COLUMNS}
          rows={rows}
          rowKey={rowKey}
          selected={selected?.name}
          onSelect={setItem}
          empty={<Empty title={words.empty} icon="search" />}
        />
      </WithPanel>
    </>
  );
}
