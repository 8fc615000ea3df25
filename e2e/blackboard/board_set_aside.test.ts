import { randomUUID } from "node:crypto";
import { agent } from "@khala/server";
import { eventually } from "@khala/test-support/kit/eventually";
import { testViewer } from "@khala/test-support/kit/viewer";
import { BACKENDS } from "@khala/test-support/servers/backends";
import { ADA, boardServers, publish } from "@khala/test-support/servers/board_servers";
import { describe, expect, test } from "vitest";

const operator = testViewer({ subject: "olga", scopes: ["ops"] });
const foreign = testViewer({ subject: "mallory", org: "evil", scopes: ["ops"] });
const platform = testViewer({ subject: "root", org: "evil", scopes: ["platform"] });
const ALL = { after: "", limit: 100 };

test("keeps an artifact that the board refuses for good, with its error, to retry or discard", async () => {
  await using servers = await boardServers();
  const { blackboard } = await servers.start({ agents: [] });
  const id = randomUUID();
  await blackboard.publish(ADA, [{ type: "Note", id, payload: "first" }]);
  const later = { type: "Note", payload: null, not_before: "2100-01-01T00:00:00Z" };
  const other = { type: "Note", id, payload: "second" };
  const [, , behind] = await blackboard.publish(ADA, [later, other, { type: "Note", payload: "behind it" }]);
  const listed = () => blackboard.setAside(operator, ALL);
  const [item] = await eventually("it is set aside", async () => {
    const items = await listed();
    return items.length === 1 && items;
  });
  expect(item).toMatchObject({ org_id: "acme", loop: "board outbox", kind: "artifact", item: id });
  expect(item!.error).toContain(id);
  await eventually("the next one is published", () => blackboard.get(ADA, behind!.id!));
  await eventually("health says so", () => blackboard.problems().includes("board outbox: 1 set aside"));

  expect(await blackboard.setAside(foreign, ALL)).toEqual([]);
  expect(await blackboard.setAside(platform, ALL)).toEqual([item]);
  for (const change of ["retrySetAside", "discardSetAside"] as const)
    await expect(blackboard[change](foreign, item!.id!)).rejects.toMatchObject({ code: "not_found" });

  await blackboard.retrySetAside(operator, item!.id!);
  const [again] = await eventually("it is refused again", async () => {
    const items = await listed();
    return items.length === 1 && items;
  });
  expect(again!.id).not.toBe(item!.id);
  const text = "DELETE FROM runtime.board_artifacts WHERE org_id = 'acme' AND id = $1";
  await servers.database.query({ text, values: [id] });
  await blackboard.retrySetAside(operator, again!.id!);
  await eventually("it is published", async () => (await blackboard.get(ADA, id))?.payload === "second");
  expect(await listed()).toEqual([]);
  await eventually("health is well again", () => blackboard.problems().length === 0);

  await blackboard.publish(ADA, [later, { ...other, payload: "third" }]);
  const [third] = await eventually("the third is set aside", async () => {
    const items = await listed();
    return items.length === 1 && items;
  });
  await blackboard.discardSetAside(platform, third!.id!);
  expect(await listed()).toEqual([]);
  await expect(blackboard.retrySetAside(operator, third!.id!)).rejects.toMatchObject({ code: "not_found" });
});

describe.each(BACKENDS)("on %s", (backend) => {
  test("lists an item that fails again and again, to its org alone, until it succeeds", async () => {
    await using servers = await boardServers(backend);
    const { database } = servers;
    const read: number[] = [];
    const reader = agent("reader", {
      consumes: "Note",
      batch: { size: 10, timeout: 60_000 },
      run: ({ artifacts }) => void read.push(artifacts.length),
    });
    const khala = await servers.start({ agents: [reader] });
    const { blackboard } = khala;
    await publish(khala, { type: "Note", payload: "kept" });
    const [{ artifact } = { artifact: "" }] = await eventually(
      "it waits for the rest of its batch",
      async () => {
        const rows = await database.query<{ artifact: string }>({
          text: "SELECT artifact::text FROM runtime.board_members WHERE org_id = 'acme'",
        });
        return rows.length === 1 && rows;
      },
    );
    const change = (to: string) =>
      database.query({
        text: "UPDATE runtime.board_members SET artifact = $1::json WHERE org_id = 'acme'",
        values: [to],
      });
    await change("null");
    await database.query({ text: "UPDATE runtime.board_groups SET due_at = now() WHERE org_id = 'acme'" });
    const [item] = await eventually("it is listed", async () => {
      const items = await blackboard.setAside(operator, ALL);
      return items.length === 1 && items;
    });
    expect(item).toMatchObject({
      org_id: "acme",
      loop: "board gather",
      kind: "failing",
      item: expect.stringContaining("reader"),
      error: expect.stringContaining("null"),
    });
    expect(await blackboard.setAside(foreign, ALL)).toEqual([]);
    // It is tried again by itself, so there is nothing to decide.
    for (const change of ["retrySetAside", "discardSetAside"] as const)
      await expect(blackboard[change](operator, item!.id!)).rejects.toMatchObject({ code: "not_found" });
    await change(artifact);
    await eventually("it is read", () => read.length === 1);
    await eventually(
      "it is listed no more",
      async () => (await blackboard.setAside(operator, ALL)).length === 0,
    );
  });
});
