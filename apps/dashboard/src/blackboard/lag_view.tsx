import { countText } from "../parts/numbers.ts";
import { Empty } from "../parts/states.tsx";
import { boardWords } from "../strings/blackboard.ts";
import type { PartitionLag } from "./board_types.ts";

const words = boardWords.lag;

/** How far behind each reader is, a bar for every partition, on one scale. */
export function LagView({
  partitions,
  only,
  isOld = false,
}: {
  readonly partitions: readonly PartitionLag[];
  readonly only?: string;
  /** Nobody knows how it is now. */
  readonly isOld?: boolean;
}) {
  const shown = only === undefined ? partitions : partitions.filter(({ reader }) => reader === only);
  if (shown.length === 0)
    return (
      <Empty title={words.emptyTitle} icon="blackboard">
        {words.emptyText}
      </Empty>
    );
  const most = Math.max(1, ...shown.map(({ lag_high, lag }) => Math.max(lag, lag_high)));
  const total = shown.reduce((sum, { lag }) => sum + lag, 0);
  const readers = Map.groupBy(shown, ({ reader }) => reader);
  return (
    <section className="lag" aria-label={words.label}>
      <p className="lag-total">
        {isOld
          ? total === 0
            ? words.caughtUpThen
            : words.totalThen(total)
          : total === 0
            ? words.caughtUp
            : words.total(total)}
      </p>
      <table>
        <caption className="visually-hidden">{words.label}</caption>
        <thead>
          <tr>
            <th scope="col">{words.reader}</th>
            <th scope="col">{words.partition}</th>
            <th scope="col" className="lag-figure">
              {words.lag}
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
                    {reader}
                  </th>
                )}
                <td className="mono">
                  {row.topic}/{row.partition}
                </td>
                <td className="lag-figure">{countText(row.lag)}</td>
                <td>
                  <LagBar row={row} most={most} />
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
function LagBar({ row: { lag, lag_high }, most }: { readonly row: PartitionLag; readonly most: number }) {
  const held = Math.max(0, lag_high - lag);
  const width = (n: number) => `${((n / most) * 100).toFixed(2)}%`;
  return (
    <span className="lag-bar" title={held > 0 ? words.held(held) : undefined}>
      <span className={lag > 0 ? "lag-bar-now" : "lag-bar-none"} style={{ width: width(lag) }} />
      {held > 0 && <span className="lag-bar-held" style={{ width: width(held) }} />}
    </span>
  );
}
