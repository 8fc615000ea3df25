import { NO_ORG } from "@khala/server/blackboard";
import { kafkaHere } from "@khala/test-support/kafka/kafka";
import { eventually } from "@khala/test-support/kit/eventually";
import { describe, expect, test } from "vitest";
import { openPlainAdmin, type PlainAdmin } from "../client/plain_admin.ts";
import { artifact, deadLetter, openStage, type Stage, task } from "../test_support.ts";
import { deadLetterRecord } from "../topics/records.ts";
import type { Views } from "./views.ts";

interface Dropper extends PlainAdmin {
  deleteRecords(options: {
    readonly topics: readonly {
      readonly name: string;
      readonly partitions: readonly { readonly partition: number; readonly offset: bigint }[];
    }[];
  }): Promise<unknown>;
}

const origin = { topic: "flock.tasks.reviewer", partition: 1, offset: "42", timestamp: 7 };

async function bury(stage: Stage, count: number, correlation = "c") {
  const letters = Array.from({ length: count }, () =>
    deadLetter({ task: task({ artifacts: [artifact({ correlation_id: correlation })] }) }),
  );
  const topic = stage.names.deadLetters("reviewer");
  await stage.producers.transaction(({ send }) =>
    send(letters.map((letter) => ({ topic, record: deadLetterRecord(letter, origin) }))),
  );
  return letters;
}

/** Committed records are visible as soon as the brokers have written their markers. */
const foundIn = (views: Views, id: string) =>
  eventually("the letter", async () => (await views.deadLettersById("reviewer", ["acme"], [id]))[0]);

async function pages(views: Views, limit: number, correlationId?: string): Promise<string[][]> {
  const found: string[][] = [];
  for (let after: string | undefined; ; ) {
    const query = { orgs: ["acme"], limit, ...(after && { after }), ...(correlationId && { correlationId }) };
    const page = await views.deadLetters("reviewer", query);
    found.push(page.deadLetters.map(({ id }) => id));
    if (!page.next) return found.filter((ids) => ids.length > 0);
    after = page.next;
  }
}

describe.runIf(kafkaHere()).concurrent("dead letters", () => {
  test("reads a dead letter with its error, attempts and origin", async () => {
    await using stage = await openStage();
    const views = await stage.views();
    const [letter] = await bury(stage, 1);
    expect(await foundIn(views, letter!.id)).toEqual(letter);
    expect((await views.deadLetters("reviewer", { orgs: ["acme"], limit: 9 })).deadLetters).toEqual([letter]);
    expect(
      (await views.deadLettersById("reviewer", ["acme"], ["0190a000-0000-7000-8000-000000000000"]))[0],
    ).toBeUndefined();
    expect(await views.deadLetters("nobody", { orgs: ["acme"], limit: 9 })).toEqual({ deadLetters: [] });
    expect((await views.deadNames()).get("reviewer")).toHaveLength(1);
    expect(await views.correlations([{ org: "acme", name: "c" }])).toMatchObject([{ dead: 1 }]);
  });

  test("pages newest first, without gaps or repetition, across transactions and restarts", async () => {
    await using stage = await openStage();
    const ids: string[] = [];
    for (let i = 0; i < 5; i++) ids.push(...(await bury(stage, 3)).map(({ id }) => id));
    const views = await stage.views();
    expect(await pages(views, 4)).toEqual([
      ids.slice(11).reverse(),
      ids.slice(7, 11).reverse(),
      ids.slice(3, 7).reverse(),
      ids.slice(0, 3).reverse(),
    ]);
    expect((await pages(views, 100))[0]).toEqual(ids.toReversed());
    await expect(
      views.deadLetters("reviewer", { orgs: ["acme"], limit: 1, after: "x" }),
    ).rejects.toMatchObject({
      code: "invalid_request",
    });
  });

  test("finds dead letters by id anywhere in the log", async () => {
    await using stage = await openStage();
    const views = await stage.views();
    const letters = await bury(stage, 450);
    await foundIn(views, letters.at(-1)!.id);
    const named = [letters[449]!, letters[0]!, letters[201]!, letters[7]!];
    const ids = named.map(({ id }) => id);
    expect(
      await views.deadLettersById("reviewer", ["acme"], ["0190a000-0000-7000-8000-000000000000", ...ids]),
    ).toEqual(named);
    expect(await views.deadLettersById("nobody", ["acme"], ids)).toEqual([]);
  });

  test("finds the dead letters of a correlation among others", async () => {
    await using stage = await openStage();
    const wanted = await bury(stage, 2, "mine");
    await bury(stage, 250, "theirs");
    wanted.push(...(await bury(stage, 1, "mine")));
    const ids = wanted.map(({ id }) => id).reverse();
    expect((await pages(await stage.views(), 10, "mine")).flat()).toEqual(ids);
    expect((await pages(await stage.views(), 1, "mine")).flat()).toEqual(ids);
  });

  test("keeps an undecodable record unchanged, with the error", async () => {
    await using stage = await openStage();
    const raw = Buffer.from([0xff, 0x00, 0xfe]);
    const letter = deadLetter({ raw: raw.toString("base64") });
    const record = deadLetterRecord(letter, origin, { key: Buffer.from("k"), value: raw });
    await stage.write(stage.names.deadLetters("reviewer"), record, { key: null, value: null });
    const { deadLetters } = await (await stage.views()).deadLetters("reviewer", { orgs: [NO_ORG], limit: 9 });
    expect(deadLetters).toHaveLength(2);
    expect(deadLetters[1]).toEqual(letter);
    expect(deadLetters[0]).toMatchObject({ raw: "", failure: { class: "Error" } });
  });

  test("stops counting dead letters that the log has dropped", async () => {
    await using stage = await openStage();
    const views = await stage.views();
    await bury(stage, 5);
    await eventually("all are counted", async () => (await views.deadNames()).get("reviewer")?.length === 5);
    // As retention does after a while.
    const admin = (await openPlainAdmin(stage.settings.kafka)) as Dropper;
    const partitions = [{ partition: 0, offset: 3n }];
    await admin.deleteRecords({ topics: [{ name: stage.names.deadLetters("reviewer"), partitions }] });
    await admin.close();
    expect((await views.deadNames()).get("reviewer")).toHaveLength(2);
    expect((await (await stage.views()).deadNames()).get("reviewer")).toHaveLength(2);
  });

  test("cuts a long stack, so that the dead letter fits", async () => {
    await using stage = await openStage({ maxRecordBytes: 262_144 });
    const artifacts = Array.from({ length: 4 }, () => artifact({ payload: "x".repeat(261_500) }));
    const [first, ...rest] = artifacts;
    const stack = "at somewhere é\n".repeat(1_000_000);
    const letter = deadLetter({
      task: task({ artifacts: [first!, ...rest] }),
      failure: { class: "E".repeat(9_999), message: "m".repeat(99_999), stack, kind: "fatal" },
    });
    const topic = stage.names.deadLetters("reviewer");
    const views = await stage.views();
    await stage.producers.transaction(({ send }) =>
      send([{ topic, record: deadLetterRecord(letter, origin) }]),
    );
    const { task: own, failure } = await foundIn(views, letter.id);
    expect(own).toEqual(letter.task);
    expect(stack.startsWith(failure.stack!)).toBe(true);
  });
});
