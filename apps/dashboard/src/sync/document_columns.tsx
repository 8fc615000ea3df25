import { knownStateOf, StateBadge } from "../ui/feedback/state_badge.tsx";
import { Ago } from "../ui/format/ago.tsx";
import { Id, shortenMiddle } from "../ui/format/id.tsx";
import { bytesText } from "../ui/format/numbers.ts";
import { type Column, numbers } from "../ui/table/columns.ts";
import type { DocumentRow } from "./document_pages.ts";

/** Fields beside the key; more would not be readable in a row. */
const MAX_FIELDS = 5;
/** Rows from which columns are chosen. */
const SAMPLED = 50;
/** A key up to this length is shown whole. */
const SHORT_KEY = 22;
/** Fields that say what a document is come first, then its state, then when. */
const ORDER = [/^(title|name|subject|label|text|summary|message)$/, /(^|_)(status|state|kind|type|phase)$/];
const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d/;
const LONG_ID = /^(\w+[-:])?[0-9a-f]{8}-[0-9a-f]{4}-/i;

/** A field of documents. */
export interface Field {
  readonly name: string;
  /** All documents that have it have a number there. */
  readonly isNumber: boolean;
}

/** The fields of the first documents that are worth a column: those that most have, and that are not the key again. */
export function fieldsOf(rows: readonly DocumentRow[]): readonly Field[] {
  const sampled = rows.slice(0, SAMPLED);
  const seen = new Map<string, { count: number; at: number; isNumber: boolean }>();
  for (const { preview, doc_key } of sampled)
    for (const [name, value] of Object.entries(preview)) {
      const isKey = typeof value === "string" && value !== "" && doc_key.endsWith(`:${value}`);
      // The table has a column for it anyway.
      if (isKey || name === "updated_at") continue;
      const known = seen.get(name) ?? { count: 0, at: seen.size, isNumber: true };
      const isNumber = known.isNumber && typeof value === "number";
      seen.set(name, { ...known, count: known.count + 1, isNumber });
    }
  const rank = (name: string) => {
    const at = ORDER.findIndex((pattern) => pattern.test(name));
    return at < 0 ? ORDER.length : at;
  };
  return [...seen]
    .filter(([, { count }]) => count * 2 >= sampled.length)
    .sort(([a, one], [b, other]) => rank(a) - rank(b) || one.at - other.at)
    .slice(0, MAX_FIELDS)
    .map(([name, { isNumber }]) => ({ name, isNumber }));
}

/** The columns of a topic: its key, its own fields, and what the server knows of each document. */
export function documentColumns(fields: readonly Field[]): readonly Column<DocumentRow>[] {
  return [
    {
      head: "Key",
      width: "minmax(112px, 1.6fr)",
      sortBy: ({ doc_key }) => doc_key,
      cell: ({ doc_key, gone }) => (
        <span className={gone ? "document-gone" : undefined}>
          <Id value={doc_key} length={SHORT_KEY} />
        </span>
      ),
    },
    ...fields.map(fieldColumn),
    {
      head: "Version",
      width: 84,
      align: "end",
      wideOnly: true,
      sortBy: ({ doc_version }) => Number(doc_version),
      cell: ({ doc_version, gone }) => (gone ? <span className="quiet">deleted</span> : doc_version),
    },
    {
      head: "Updated",
      width: 92,
      wideOnly: true,
      sortBy: ({ updated_at }) => updated_at,
      cell: ({ updated_at }) => <Ago at={updated_at} />,
    },
    { ...numbers("Size", 72, ({ bytes }: DocumentRow) => bytesText(bytes)), sortBy: ({ bytes }) => bytes },
    {
      head: "Audience",
      width: "minmax(100px, 0.8fr)",
      wideOnly: true,
      cell: ({ audience }) =>
        audience.length === 0 ? <span className="quiet">whole org</span> : audience.join(", "),
    },
  ];
}

function fieldColumn({ name, isNumber }: Field, at: number): Column<DocumentRow> {
  return {
    head: `${name.charAt(0).toUpperCase()}${name.slice(1).replaceAll("_", " ")}`,
    width: at === 0 ? "minmax(104px, 2fr)" : "minmax(100px, 1fr)",
    align: isNumber ? "end" : "start",
    // The first says what it is, also on a phone.
    wideOnly: at > 1,
    sortBy({ preview }) {
      const value = preview[name];
      return typeof value === "boolean" ? String(value) : (value as string | number | undefined);
    },
    cell: ({ preview }) => <Value name={name} value={preview[name]} />,
  };
}

function Value({ name, value }: { readonly name: string; readonly value: unknown }) {
  if (value === undefined || value === "") return <span className="quiet">–</span>;
  if (typeof value !== "string") return String(value);
  if (TIME.test(value)) return <Ago at={value} />;
  const state = ORDER[1]!.test(name) ? knownStateOf(value.split(".").at(-1)) : undefined;
  if (state) return <StateBadge state={state} word={value} />;
  const isId = LONG_ID.test(value) && !value.includes(" ");
  return (
    <span title={value} className={isId ? "mono" : undefined}>
      {isId ? shortenMiddle(value, 16) : value}
    </span>
  );
}
