import {
  A,
  at,
  B,
  ensure,
  expectSame,
  failure,
  puts,
  randomChanges,
  range,
  refused,
  reopened,
  type StorageUnderTest,
  T,
} from "./conformance_support.ts";
import type { StoredDocument, TopicChange } from "./storage.ts";

/** One check of the storage port. It throws on failure. */
export interface StorageCheck {
  readonly name: string;
  run(under: StorageUnderTest): Promise<void>;
}

/** The checks that every storage must pass, for any test runner. Give each check its own store. */
export const storageConformance: readonly StorageCheck[] = [
  {
    name: "a topic that was never stored is absent",
    async run(under) {
      const storage = await under.open();
      ensure((await storage.load(A, T)) === undefined, "there was something");
      await storage.close();
    },
  },
  {
    name: "committed documents are loaded after the storage is opened again",
    async run(under) {
      const documents: StoredDocument[] = [
        {
          key: "a",
          version: "1",
          hash: "h1",
          updatedAt: "2026-01-01T00:00:00Z",
          payload: { n: 1, deep: [null, "x"] },
        },
        { key: "b", version: "9007199254740993", hash: "h2", payload: "text" },
        { key: "c", version: "2", hash: "h3", payload: null },
        { key: "d", version: "3", hash: "h4" },
        { key: "e", version: "4", hash: "", deleted: true },
      ];
      const storage = await under.open();
      await storage.commit(A, T, { replace: true, put: documents, remove: [], cursor: at(5) });
      await expectSame(await reopened(under, storage), A, T, documents, at(5));
    },
  },
  {
    name: "changes accumulate: put, put again, remove",
    async run(under) {
      let storage = await under.open();
      const expected = new Map<string, StoredDocument>();
      await storage.commit(A, T, { replace: true, put: [], remove: [], cursor: at(99) });
      for (const n of range(60)) {
        const put = puts([`k${n}`, `k${n % 7}`, `k${n * 3}`], n);
        const remove = n % 5 === 0 ? [`k${n - 3}`, "never there"] : [];
        await storage.commit(A, T, { after: at(n > 0 ? n - 1 : 99), put, remove, cursor: at(n) });
        for (const key of remove) expected.delete(key);
        for (const document of put) expected.set(document.key, document);
        if (n % 20 === 0) storage = await reopened(under, storage);
        await expectSame(storage, A, T, [...expected.values()], at(n));
      }
      await storage.close();
    },
  },
  {
    name: "a commit that puts and removes the same key leaves the document",
    async run(under) {
      const storage = await under.open();
      await storage.commit(A, T, { replace: true, put: puts(["a"], 1), remove: [], cursor: at(1) });
      await storage.commit(A, T, { after: at(1), put: puts(["a"], 2), remove: ["a"], cursor: at(2) });
      await expectSame(storage, A, T, puts(["a"], 2), at(2));
      await storage.close();
    },
  },
  {
    name: "replace removes everything else, also with nothing to put",
    async run(under) {
      const storage = await under.open();
      await storage.commit(A, T, { replace: true, put: puts(["a", "b", "c"], 1), remove: [], cursor: at(1) });
      await storage.commit(A, T, { after: at(1), put: puts(["d"], 2), remove: ["a"], cursor: at(2) });
      await storage.commit(A, T, {
        replace: true,
        put: puts(["b", "e"], 3),
        remove: [],
        cursor: at(7, "e2"),
      });
      await expectSame(storage, A, T, puts(["b", "e"], 3), at(7, "e2"));
      await storage.commit(A, T, { replace: true, put: [], remove: [], cursor: at(8, "e2") });
      await expectSame(await reopened(under, storage), A, T, [], at(8, "e2"));
    },
  },
  {
    name: "a cursor can move without a document",
    async run(under) {
      const storage = await under.open();
      await storage.commit(A, T, { replace: true, put: puts(["a"], 1), remove: [], cursor: at(9) });
      for (const n of range(5))
        await storage.commit(A, T, { after: at(9 + n), put: [], remove: [], cursor: at(10 + n) });
      await expectSame(await reopened(under, storage), A, T, puts(["a"], 1), at(14));
    },
  },
  {
    name: "scopes and topics are separate, whatever their names",
    async run(under) {
      const storage = await under.open();
      const names = [A, B, "", "a", 'a":', 'a":"b', "a b", "ü", "a/b", "%2F"];
      for (const [n, scope] of names.entries())
        for (const topic of [T, "", 'b":', "t%"])
          await storage.commit(scope, topic, {
            replace: true,
            put: puts([`${scope}|${topic}`], n),
            remove: [],
            cursor: at(n + 1),
          });
      await storage.clear("a", 'b":');
      await storage.clear(B);
      const again = await reopened(under, storage);
      for (const [n, scope] of names.entries())
        for (const topic of [T, "", 'b":', "t%"]) {
          const cleared = scope === B || (scope === "a" && topic === 'b":');
          if (cleared) ensure((await again.load(scope, topic)) === undefined, `${scope} was not cleared`);
          else await expectSame(again, scope, topic, puts([`${scope}|${topic}`], n), at(n + 1));
        }
      await again.clear();
      for (const scope of names)
        ensure((await again.load(scope, T)) === undefined, "not everything was cleared");
      await again.close();
    },
  },
  {
    name: "any text is a key and a payload",
    async run(under) {
      const storage = await under.open();
      const keys = [
        "",
        " ",
        "ключ",
        "鍵",
        "🔑",
        "e\u0301",
        "é",
        "'; --",
        '"\\',
        "a\nb",
        "__proto__",
        "x".repeat(2_000),
      ];
      const documents = keys.map((key) => ({
        key,
        version: "1",
        hash: "h",
        payload: { [key]: `${key}\u2028\ud83d` },
      }));
      await storage.commit(A, T, { replace: true, put: documents, remove: [], cursor: at(1) });
      await storage.commit(A, T, { after: at(1), put: [], remove: ["é", "🔑"], cursor: at(2) });
      const left = documents.filter(({ key }) => key !== "é" && key !== "🔑");
      await expectSame(await reopened(under, storage), A, T, left, at(2));
    },
  },
  {
    name: "thousands of documents are stored, changed and loaded",
    async run(under) {
      const storage = await under.open();
      const keys = range(2_000).map((n) => `runtime/run_summaries:run-${n}`);
      await storage.commit(A, T, { replace: true, put: puts(keys, 1), remove: [], cursor: at(1) });
      for (const n of range(50))
        await storage.commit(A, T, {
          after: at(1 + n),
          put: puts([keys[n]!], 2),
          remove: [],
          cursor: at(2 + n),
        });
      const expected = [...puts(keys.slice(0, 50), 2), ...puts(keys.slice(50), 1)];
      await expectSame(await reopened(under, storage), A, T, expected, at(51));
    },
  },
  {
    name: "concurrent commits are applied in order",
    async run(under) {
      const storage = await under.open();
      const whole = storage.commit(A, T, { replace: true, put: [], remove: [], cursor: at(99) });
      const all = range(40).map((n) =>
        storage.commit(A, T, {
          after: at(n > 0 ? n - 1 : 99),
          put: puts(["a", `b${n}`], n),
          remove: [],
          cursor: at(n),
        }),
      );
      await whole;
      await Promise.all(all);
      const others = range(39).flatMap((n) => puts([`b${n}`], n));
      await expectSame(storage, A, T, [...others, ...puts(["a", "b39"], 39)], at(39));
      await storage.close();
    },
  },
  {
    name: "a document that cannot be stored fails the commit and changes nothing",
    async run(under) {
      const storage = await under.open();
      await storage.commit(A, T, { replace: true, put: puts(["a", "b"], 1), remove: [], cursor: at(1) });
      const bad = [...puts(["a", "b", "c"], 2)];
      Object.defineProperty(bad, 2, {
        enumerable: true,
        get: () => {
          throw new Error("cannot be read");
        },
      });
      for (const how of [{ after: at(1) }, { replace: true }] as const)
        await failure(storage.commit(A, T, { ...how, put: bad, remove: ["b"], cursor: at(2) }));
      await expectSame(storage, A, T, puts(["a", "b"], 1), at(1));
      await storage.commit(A, T, { after: at(1), put: puts(["c"], 2), remove: [], cursor: at(2) });
      await expectSame(
        await reopened(under, storage),
        A,
        T,
        [...puts(["a", "b"], 1), ...puts(["c"], 2)],
        at(2),
      );
    },
  },
  {
    name: "a commit is atomic wherever the store fails, and the next one works",
    async run(under) {
      if (!under.failing) return;
      for (const replace of [false, true]) {
        const storage = await under.open();
        await storage.clear();
        let n = 0;
        const step = async (): Promise<TopicChange> => {
          const change = { put: puts(["a", "b", "c"], n), remove: [], cursor: at(n) };
          const after = (await storage.load(A, T))?.cursor;
          return replace || !after ? { replace: true, ...change } : { after, ...change };
        };
        await storage.commit(A, T, await step());
        for (let failAt = 0, there = true; there; failAt++) {
          n++;
          let failed = false;
          const change = await step();
          there = await under.failing(failAt, async () => {
            failed = await storage.commit(A, T, change).then(
              () => false,
              () => true,
            );
          });
          for (const reader of [storage, await under.open()]) {
            const loaded = await reader.load(A, T);
            const got = Number(loaded?.cursor.watermark);
            ensure(
              got === n || (failed && got === n - 1),
              `it is at ${got}, step ${failAt} of commit ${n} failed`,
            );
            await expectSame(reader, A, T, puts(["a", "b", "c"], got), at(got));
          }
          await storage.commit(A, T, await step());
          await expectSame(storage, A, T, puts(["a", "b", "c"], n), at(n));
        }
        await storage.close();
      }
    },
  },
  {
    name: "two programs that write concurrently never mix their data",
    async run(under) {
      if (!under.persistent) return;
      const [one, two] = [await under.open(), await under.open()];
      await one.commit(A, T, { replace: true, put: puts(["a"], 1), remove: [], cursor: at(1) });
      await expectSame(two, A, T, puts(["a"], 1), at(1));
      await one.commit(A, T, { after: at(1), put: puts(["b"], 2), remove: [], cursor: at(2) });
      // It knows nothing after 1: added to the stored state, this would hide the change at 2 or undo it.
      for (const _again of range(2))
        await refused(two.commit(A, T, { after: at(1), put: puts(["c"], 3), remove: ["b"], cursor: at(3) }));
      await expectSame(two, A, T, [...puts(["a"], 1), ...puts(["b"], 2)], at(2));
      await two.commit(A, T, { after: at(2), put: puts(["d"], 3), remove: [], cursor: at(3) });
      await two.commit(A, T, { replace: true, put: puts(["e"], 5), remove: [], cursor: at(5) });
      await expectSame(one, A, T, puts(["e"], 5), at(5));
      for (const storage of [one, two]) await storage.close();
    },
  },
  {
    name: "a change of a cleared topic is refused, and other topics are not touched by the clear",
    async run(under) {
      for (const clear of [[], [A], [A, T]] as const) {
        const storage = await under.open();
        await storage.commit(A, T, { replace: true, put: puts(["a"], 1), remove: [], cursor: at(1) });
        await storage.commit(B, T, { replace: true, put: puts(["b"], 1), remove: [], cursor: at(1) });
        await storage.clear(...clear);
        await refused(storage.commit(A, T, { after: at(1), put: [], remove: [], cursor: at(2) }));
        ensure((await storage.load(A, T)) === undefined, "a cursor was stored without its documents");
        await refused(storage.commit(B, T, { after: at(7), put: [], remove: [], cursor: at(8) }));
        if (clear.length > 0) await expectSame(storage, B, T, puts(["b"], 1), at(1));
        await storage.close();
      }
    },
  },
  ...[1, 2, 3].map(
    (seed): StorageCheck => ({
      name: `whatever clears and changes come together, a cursor has its documents (seed ${seed})`,
      run: (under) => randomChanges(under, seed),
    }),
  ),
  {
    name: "an unreadable topic is absent, and can be stored again",
    async run(under) {
      if (!under.corrupt) return;
      const storage = await under.open();
      await storage.commit(A, T, { replace: true, put: puts(["a", "b"], 1), remove: [], cursor: at(1) });
      await storage.commit(B, T, { replace: true, put: puts(["b"], 1), remove: [], cursor: at(1) });
      await storage.close();
      await under.corrupt(A, T);
      const again = await under.open();
      ensure((await again.load(A, T)) === undefined, "it was loaded");
      await expectSame(again, B, T, puts(["b"], 1), at(1));
      await again.commit(A, T, { replace: true, put: puts(["c"], 2), remove: [], cursor: at(2) });
      await expectSame(again, A, T, puts(["c"], 2), at(2));
      await again.close();
    },
  },
];
