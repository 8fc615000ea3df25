/** The `count` items with the latest times, latest first; equal ones keep their order. One pass over all items. */
export function newest<Item>(
  items: readonly Item[],
  timeOf: (item: Item) => string,
  count: number,
): readonly Item[] {
  const found: { readonly item: Item; readonly time: string }[] = [];
  for (const item of items) {
    const time = timeOf(item);
    const last = found.at(-1);
    if (found.length === count && last && time <= last.time) continue;
    const at = found.findIndex((one) => one.time < time);
    found.splice(at < 0 ? found.length : at, 0, { item, time });
    if (found.length > count) found.pop();
  }
  return found.map(({ item }) => item);
}
