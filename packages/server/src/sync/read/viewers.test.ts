import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { type EncodedUpdate, encodeUpdate } from "./update_codec.ts";
import { sees, type Viewer, Viewers } from "./viewers.ts";

interface Access {
  readonly org: string;
  readonly audience?: readonly string[] | null;
  readonly hiddenFrom?: readonly string[] | null;
}

function update({ org, audience = null, hiddenFrom = null }: Access, watermark = 1n): EncodedUpdate {
  const row = {
    watermark,
    docKey: `run:${watermark}`,
    docVersion: 1n,
    op: "delete" as const,
    payload: null,
    payloadHash: null,
    payloadBytes: 0,
    org,
    audience,
    hiddenFrom,
    trace: null,
    insertedAt: 0,
  };
  return encodeUpdate("topic", row, 1_000);
}

const viewer = (org: string, subject: string): Viewer => ({ org, subject, encoding: "json" });

describe("a row is visible", () => {
  test("to its whole org when it names nobody, and to no other org", () => {
    expect(sees(viewer("a", "ann"), update({ org: "a" }))).toBe(true);
    expect(sees(viewer("b", "ann"), update({ org: "a" }))).toBe(false);
  });

  test("to the subjects that it names, in its own org only", () => {
    const named = update({ org: "a", audience: ["ann"] });
    expect(sees(viewer("a", "ann"), named)).toBe(true);
    expect(sees(viewer("a", "bob"), named)).toBe(false);
    expect(sees(viewer("b", "ann"), named)).toBe(false);
  });

  test("to nobody that it is hidden from", () => {
    const hidden = update({ org: "a", hiddenFrom: ["ann"] });
    expect(sees(viewer("a", "ann"), hidden)).toBe(false);
    expect(sees(viewer("a", "bob"), hidden)).toBe(true);
  });
});

const org = fc.constantFrom("a", "b");
const subject = fc.constantFrom("ann", "bob", "eve", "zoe");
const members = fc.array(
  fc.record({ org, subject, encoding: fc.constantFrom("json" as const, "proto" as const) }),
  { maxLength: 15 },
);
const rows = fc.array(
  fc.record({
    org,
    audience: fc.option(fc.array(subject)),
    hiddenFrom: fc.option(fc.array(subject)),
  }),
  { maxLength: 8 },
);

test("a live viewer gets exactly its visible rows, in order, once", () => {
  fc.assert(
    fc.property(members, rows, fc.array(fc.nat(14)), (keys, accesses, leaving) => {
      const viewers = new Viewers<Viewer>();
      for (const key of keys) viewers.add(key);
      const gone = new Set<Viewer>(leaving.flatMap((i) => keys[i] ?? []));
      for (const key of gone) viewers.delete(key);
      const live: Viewer[] = keys.filter((key) => !gone.has(key));
      expect(viewers.size).toBe(live.length);
      expect(new Set(viewers)).toEqual(new Set(live));

      const updates = accesses.map((access, i) => update(access, BigInt(i)));
      const given = new Map<Viewer, readonly EncodedUpdate[]>();
      for (const share of viewers.split(updates)) {
        for (const member of share.members) {
          expect(given.has(member)).toBe(false);
          given.set(member, share.updates);
        }
      }
      for (const member of live)
        expect(given.get(member) ?? []).toEqual(updates.filter((each) => sees(member, each)));
      expect([...given.keys()].filter((member) => !live.includes(member))).toEqual([]);
    }),
  );
});

test("rows visible to a whole org are one share, however many subjects it has", () => {
  const viewers = new Viewers<Viewer>();
  for (let i = 0; i < 100; i++) viewers.add(viewer("a", `subject-${i}`));
  const shares = [...viewers.split([update({ org: "a" }), update({ org: "a" }, 2n)])];
  expect(shares).toHaveLength(1);
  expect([...shares[0]!.members]).toHaveLength(100);
});

test("subjects with the same visible rows share them, also when the rows name them", () => {
  const viewers = new Viewers<Viewer>();
  const names = Array.from({ length: 5_000 }, (_, i) => `subject-${i}`);
  for (const name of names) viewers.add(viewer("a", name));
  const evens = names.filter((_, i) => i % 2 === 0);
  const updates = Array.from({ length: 20 }, (_, i) =>
    update({ org: "a", audience: i % 5 === 0 ? evens : names }, BigInt(i)),
  );
  const shares = [...viewers.split(updates)].map(({ updates, members }) => [
    updates.length,
    [...members].length,
  ]);
  expect(shares.sort()).toEqual([
    [16, 2_500],
    [20, 2_500],
  ]);
});

test("adding twice counts once, and deleting a missing viewer changes nothing", () => {
  const viewers = new Viewers<Viewer>();
  const ann = viewer("a", "ann");
  viewers.add(ann);
  viewers.add(ann);
  expect(viewers.size).toBe(1);
  viewers.delete(viewer("a", "ann"));
  viewers.delete(viewer("b", "bob"));
  expect(viewers.size).toBe(1);
  viewers.delete(ann);
  viewers.delete(ann);
  expect(viewers.size).toBe(0);
  expect([...viewers.split([update({ org: "a" })])]).toEqual([]);
});
