/** The `count` items whose times are the latest, the latest first; of equal ones the first. One look at each, however many there are. */
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
