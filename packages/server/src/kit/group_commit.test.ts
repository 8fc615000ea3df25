import { KhalaError } from "@khala/contracts";
import { describe, expect, test } from "vitest";
import { GroupCommit, type GroupCommitOptions, type Outcome } from "./group_commit.ts";

/** A queue whose commits end when the test ends them. */
function open(options: Partial<GroupCommitOptions<string>> = {}) {
  const commits: { items: readonly string[]; end: PromiseWithResolvers<readonly Outcome[]> }[] = [];
  const queue = new GroupCommit<string, string>({
    commit(items) {
      const end = Promise.withResolvers<readonly Outcome[]>();
      commits.push({ items, end });
      return end.promise;
    },
    sizeOf: (item) => item.length,
    maxItems: 100,
    maxBytes: 1_000,
    maxWaitingBytes: 2_000,
    ...options,
  });
  const answer = (index: number) => commits[index]!.end.resolve(commits[index]!.items.map((ok) => ({ ok })));
  return { queue, commits, answer, turn: () => new Promise(setImmediate) };
}

describe("writers", () => {
  test("share a commit, or the next one when they write during a commit", async () => {
    const { queue, commits, answer, turn } = open();
    const first = ["a", "b"].map((item) => queue.write(item));
    await turn();
    const second = ["c", "d", "e"].map((item) => queue.write(item));
    answer(0);
    expect(await Promise.all(first)).toEqual(["a", "b"]);
    await turn();
    answer(1);
    expect(await Promise.all(second)).toEqual(["c", "d", "e"]);
    expect(commits.map(({ items }) => items)).toEqual([
      ["a", "b"],
      ["c", "d", "e"],
    ]);
  });

  test("are answered only after the commit that contains their item", async () => {
    const { queue, answer, turn } = open();
    let answered = false;
    const write = queue.write("a").then(() => {
      answered = true;
    });
    await turn();
    await turn();
    expect(answered).toBe(false);
    answer(0);
    await write;
  });

  test("each get their own outcome", async () => {
    const { queue, commits, turn } = open();
    const writes = ["good", "bad"].map((item) => queue.write(item));
    await turn();
    commits[0]!.end.resolve([{ ok: "done" }, { error: new Error("bad") }]);
    const outcomes = await Promise.allSettled(writes);
    expect(outcomes.map(({ status }) => status)).toEqual(["fulfilled", "rejected"]);
  });

  test("all fail with their commit, and the next commit is not affected", async () => {
    const { queue, commits, answer, turn } = open();
    const lost = ["a", "b"].map((item) => queue.write(item));
    await turn();
    const later = queue.write("c");
    commits[0]!.end.reject(new Error("no line"));
    const outcomes = await Promise.allSettled(lost);
    expect(outcomes.map(({ status }) => status)).toEqual(["rejected", "rejected"]);
    await turn();
    answer(1);
    expect(await later).toBe("c");
  });

  test("with equal keys never share a commit, and keep their order", async () => {
    const { queue, commits, answer, turn } = open({ exclusiveKey: (item) => item[0]! });
    const writes = ["a1", "b1", "a2", "a3", "c1"].map((item) => queue.write(item));
    for (let i = 0; i < 3; i++) {
      await turn();
      answer(i);
      await turn();
    }
    await Promise.all(writes);
    expect(commits.map(({ items }) => items)).toEqual([["a1", "b1", "c1"], ["a2"], ["a3"]]);
  });
});

describe("a batch", () => {
  test("is limited in items and bytes, but takes one item of any size", async () => {
    const { queue, commits, answer, turn } = open({ maxItems: 2, maxBytes: 10 });
    const items = ["a", "b", "c", "x".repeat(50), "d".repeat(6), "e".repeat(6)];
    const writes = items.map((item) => queue.write(item));
    for (let i = 0; i < 5; i++) {
      await turn();
      answer(i);
      await turn();
    }
    await Promise.all(writes);
    expect(commits.map(({ items }) => items.length)).toEqual([2, 1, 1, 1, 1]);
  });
});

describe("a full queue", () => {
  test("refuses writes with retry_after_ms until the next commit", async () => {
    const { queue, answer, turn } = open({ maxWaitingBytes: 10 });
    const writes = [queue.write("x".repeat(8))];
    const refusal = await queue.write("yyy").catch((error: unknown) => error);
    expect(refusal).toBeInstanceOf(KhalaError);
    expect(refusal).toMatchObject({ code: "overloaded", details: { retry_after_ms: 200 } });
    await turn();
    writes.push(queue.write("yyy"));
    answer(0);
    await turn();
    await turn();
    answer(1);
    expect(await Promise.all(writes)).toHaveLength(2);
  });

  test("accepts one item over the limit while the queue is empty", async () => {
    const { queue, answer, turn } = open({ maxWaitingBytes: 10 });
    const write = queue.write("x".repeat(50));
    await turn();
    answer(0);
    expect(await write).toHaveLength(50);
  });
});

test("drain waits until every write is answered, and returns at once when there is none", async () => {
  const { queue, answer, turn } = open();
  await queue.drain();
  const writes = [queue.write("a")];
  await turn();
  writes.push(queue.write("b"));
  let drained = false;
  const draining = queue.drain().then(() => {
    drained = true;
  });
  answer(0);
  await turn();
  await turn();
  expect(drained).toBe(false);
  answer(1);
  await draining;
  expect(await Promise.all(writes)).toEqual(["a", "b"]);
});

test("commits a queue of any length", async () => {
  const { queue, answer, turn } = open({ maxItems: 1, maxWaitingBytes: 1_000_000 });
  const writes = Array.from({ length: 200_000 }, () => queue.write("x"));
  await turn();
  answer(0);
  expect(await writes[0]).toBe("x");
});

test("an error between two commits fails what waits, and the next write begins again", async () => {
  let broken = true;
  const queue = new GroupCommit<string, string>({
    commit: async (items) => items.map((ok) => ({ ok })),
    sizeOf: () => 1,
    get maxItems() {
      if (broken) throw new Error("broken");
      return 100;
    },
    maxBytes: 1_000,
    maxWaitingBytes: 2_000,
  });
  const outcomes = await Promise.allSettled(["a", "b"].map((item) => queue.write(item)));
  expect(outcomes.map(({ status }) => status)).toEqual(["rejected", "rejected"]);
  broken = false;
  await queue.drain();
  expect(await queue.write("c")).toBe("c");
});

test("a callback that throws fails its writer alone", async () => {
  const refuse = (item: string) => {
    if (item === "bad") throw new Error("cannot be counted");
    return 1;
  };
  for (const name of ["sizeOf", "countOf"] as const) {
    const { queue, commits, answer, turn } = open({ [name]: refuse });
    const good = queue.write("good");
    await expect(queue.write("bad")).rejects.toThrow("cannot be counted");
    await turn();
    expect(commits.map(({ items }) => items)).toEqual([["good"]]);
    answer(0);
    expect(await good).toBe("good");
    await queue.drain();
  }
});

test("one item may count as several", async () => {
  const { queue, commits, answer, turn } = open({ maxItems: 3, countOf: (item) => item.length });
  const writes = ["aa", "bb", "c"].map((item) => queue.write(item));
  await turn();
  answer(0);
  await turn();
  await turn();
  answer(1);
  await Promise.all(writes);
  expect(commits.map(({ items }) => items)).toEqual([["aa", "bb"], ["c"]]);
});
