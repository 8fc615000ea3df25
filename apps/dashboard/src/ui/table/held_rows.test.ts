import { describe, expect, test } from "vitest";
import { holdRows } from "./held_rows.ts";

interface Row {
  readonly key: string;
  readonly text: string;
}

const row = (key: string, text = key): Row => ({ key, text });
const rowKey = ({ key }: Row) => key;
const texts = (hold: ReadonlyMap<string, Row>) => [...hold.values()].map(({ text }) => text);

describe("held rows", () => {
  const { hold } = holdRows(undefined, [row("b"), row("a")], rowKey);

  test("stay in place while new rows are counted", () => {
    const next = holdRows(hold, [row("d"), row("c"), row("b"), row("a")], rowKey);
    expect(texts(next.hold)).toEqual(["b", "a"]);
    expect(next.waiting).toBe(2);
  });

  test("are updated in place", () => {
    expect(texts(holdRows(hold, [row("a", "A"), row("b")], rowKey).hold)).toEqual(["b", "A"]);
  });

  test("stay after their removal, as last seen", () => {
    const changed = holdRows(hold, [row("b", "B"), row("a")], rowKey);
    const next = holdRows(changed.hold, [row("a")], rowKey);
    expect(texts(next.hold)).toEqual(["B", "a"]);
    expect(next.waiting).toBe(0);
  });
});
