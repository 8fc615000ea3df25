import { randomBytes, randomUUID } from "node:crypto";
import { describe, expect, test } from "vitest";
import type { FileKey, FileStore } from "../../../../server/src/conversations/files/file_store.ts";

/** A store under test. */
export interface FileStoreHandles {
  readonly store: FileStore;
  /** A key under which a file may be stored. */
  newKey(): Promise<FileKey>;
}

const MIB = 1 << 20;

async function* pieces(...all: readonly Uint8Array[]): AsyncGenerator<Uint8Array> {
  yield* all;
}

async function read(store: FileStore, key: FileKey, start: number, end: number): Promise<Buffer> {
  const read: Uint8Array[] = [];
  for await (const piece of store.get(key, { start, end })) read.push(piece);
  return Buffer.concat(read);
}

/** Features the test's server lacks, though the store has them. */
export interface FileStoreFeatures {
  /** Whether the range of the first byte alone can be read. */
  readonly firstByteAlone?: boolean;
}

/** The promises of every file store. */
export function fileStoreSuite(
  name: string,
  handles: () => FileStoreHandles,
  { firstByteAlone = true }: FileStoreFeatures = {},
): void {
  describe(`files in ${name}`, () => {
    test("return the bytes that were put, however they were split", async () => {
      const { store, newKey } = handles();
      for (const sizes of [
        [1],
        [256 << 10],
        [(256 << 10) + 1],
        [7, 300_000, 1, 5 * MIB + 3, 100_000],
        [6 * MIB, 6 * MIB],
      ]) {
        const key = await newKey();
        const put = sizes.map((size) => randomBytes(size));
        await store.put(key, pieces(...put));
        const all = Buffer.concat(put);
        expect(Buffer.compare(await read(store, key, 0, all.length), all), String(sizes)).toBe(0);
      }
    });

    test("return any range", async () => {
      const { store, newKey } = handles();
      const key = await newKey();
      const all = randomBytes(700_000);
      await store.put(key, pieces(all));
      for (const [start, end] of [
        [0, firstByteAlone ? 1 : 2],
        [699_999, 700_000],
        [262_143, 262_145],
        [262_144, 524_288],
        [1, 699_999],
        [5, 5],
      ] as const)
        expect(Buffer.compare(await read(store, key, start, end), all.subarray(start, end))).toBe(0);
    });

    test("are read in bounded pieces, whatever their length", async () => {
      const { store, newKey } = handles();
      const key = await newKey();
      let given = 0;
      async function* long() {
        for (; given < 24; given++) yield randomBytes(MIB);
      }
      await store.put(key, long());
      expect(given).toBe(24);
      let length = 0;
      for await (const piece of store.get(key, { start: 0, end: 24 * MIB })) {
        length += piece.length;
        expect(piece.length).toBeLessThanOrEqual(8 * MIB);
      }
      expect(length).toBe(24 * MIB);
    });

    test("fail with the sender's error when an upload breaks off, and can be deleted afterwards", async () => {
      const { store, newKey } = handles();
      const key = await newKey();
      async function* broken() {
        yield randomBytes(6 * MIB);
        throw new Error("The sender has left.");
      }
      await expect(store.put(key, broken())).rejects.toThrow("The sender has left.");
      await store.delete([key]);
      await expect(read(store, key, 0, 1)).rejects.toMatchObject({ code: "not_found" });
    });

    test("are gone after a delete, and deleting a missing file is no error", async () => {
      const { store, newKey } = handles();
      const [a, b] = [await newKey(), await newKey()];
      await store.put(a, pieces(Buffer.from("a")));
      await store.put(b, pieces(Buffer.from("b")));
      await store.delete([a, { org: a.org, fileId: randomUUID() }]);
      await expect(read(store, a, 0, 1)).rejects.toMatchObject({ code: "not_found" });
      expect(String(await read(store, b, 0, 1))).toBe("b");
      await store.delete([a, b]);
      await store.delete([]);
    });

    test("are separate from those of another org", async () => {
      const { store, newKey } = handles();
      const key = await newKey();
      await store.put(key, pieces(Buffer.from("mine")));
      const foreign = { ...key, org: `${key.org}-2` };
      await expect(read(store, foreign, 0, 4)).rejects.toMatchObject({ code: "not_found" });
      await store.delete([foreign]);
      expect(String(await read(store, key, 0, 4))).toBe("mine");
    });
  });
}
