import { useKhala } from "@khala/client/react";
import { useFetch } from "../data/fetch.ts";
import { links } from "../router.ts";
import { Fetched } from "../ui/feedback/fetched.tsx";
import { Empty } from "../ui/feedback/notices.tsx";
import { countText, plural } from "../ui/format/numbers.ts";
import { type PartitionLag, readLag } from "./board_types.ts";

const EVERY_MS = 2_000;
/** Reads for all agents, and is none. */
const ROUTER = "router";

/** How far behind each reader is: a bar for every partition, on one scale. */
export function Lag() {
  const { board } = useKhala();
  const state = useFetch(["lag"], async () => readLag(await board.lag()), EVERY_MS);
  return (
    <Fetched state={state}>
      {(partitions) => <LagTable partitions={partitions} isStale={state.error !== undefined} />}
    </Fetched>
  );
}

interface LagTableProps {
  readonly partitions: readonly PartitionLag[];
  /** The last request failed. */
  readonly isStale: boolean;
}

function LagTable({ partitions, isStale }: LagTableProps) {
  if (partitions.length === 0)
    return (
      <Empty title="No readers" icon="blackboard">
        A reader appears when it consumes its first artifact.
      </Empty>
    );
  const max = Math.max(1, ...partitions.map(({ lag_high, lag }) => Math.max(lag, lag_high)));
  const total = partitions.reduce((sum, { lag }) => sum + lag, 0);
  const readers = Map.groupBy(partitions, ({ reader }) => reader);
  return (
    <section className="lag" aria-label="Lag by partition">
      <p className="lag-total">
        {total === 0 ? "All readers are up to date" : `${plural(total, "task")} behind in total`}
        {isStale && ", as of the last response"}
      </p>
      <table>
        <caption className="visually-hidden">Lag by partition</caption>
        <thead>
          <tr>
            <th scope="col">Reader</th>
            <th scope="col">Partition</th>
            <th scope="col" className="lag-figure">
              Lag
            </th>
            <td />
          </tr>
        </thead>
        <tbody>
          {[...readers].flatMap(([reader, rows]) =>
            rows.map((row, index) => (
              <tr key={`${reader} ${row.topic}/${row.partition}`}>
                {index === 0 && (
                  <th scope="rowgroup" rowSpan={rows.length}>
                    {reader === ROUTER ? reader : <a href={links.agent(reader)}>{reader}</a>}
                  </th>
                )}
                <td className="mono">
                  {row.topic}/{row.partition}
                </td>
                <td className="lag-figure">{countText(row.lag)}</td>
                <td>
                  <LagBar row={row} max={max} />
                </td>
              </tr>
            )),
          )}
        </tbody>
      </table>
    </section>
  );
}

/** What can be read now, and paler what open transactions hold back. */
function LagBar({ row: { lag, lag_high }, max }: { readonly row: PartitionLag; readonly max: number }) {
  const held = Math.max(0, lag_high - lag);
  const width = (n: number) => `${((n / max) * 100).toFixed(2)}%`;
  return (
    <span
      className="lag-bar"
      title={held > 0 ? `${countText(held)} more are held back by open transactions` : undefined}
    >
      <span className={lag > 0 ? "lag-bar-now" : "lag-bar-none"} style={{ width: width(lag) }} />
      {held > 0 && <span className="lag-bar-held" style={{ width: width(held) }} />}
    </span>
  );
}
