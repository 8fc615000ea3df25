import { testDatabase } from "@khala/test-support/postgres/test_database";
import { expect, test, vi } from "vitest";
import { z } from "zod";
import type { Database } from "../database/database.ts";
import { defineStream } from "../events/stream.ts";
import { deleteExpired, EXPIRED_BATCH } from "./expiry.ts";
import { defineModel } from "./model.ts";
import { searchDocuments } from "./read/inspect.ts";
import { listDocuments } from "./read/list.ts";
import { findDocument } from "./read/read_models.ts";
import { recordStart } from "./read/starts.ts";
import { reproject } from "./rebuild/reprojection.ts";
import { journalOf, type SyncParts, syncParts } from "./test_support.ts";
import type { Projector } from "./write/projector.ts";

const PAST = "2020-01-01T00:00:00.000Z";
const FUTURE = "2100-01-01T00:00:00.000Z";

const offers = defineStream({
  kind: "offer",
  path: "/app/v1/offers",
  scope: "offers:write",
  events: { "offer.made": z.object({ until: z.string().optional() }), "offer.seen": z.object({}) },
});
interface Offer {
  readonly until?: string | undefined;
  readonly seen: number;
}
const model = defineModel({
  topic: "app.offers",
  prefix: "offer",
  streams: [offers],
  expiresAt: (offer: Offer) => offer.until,
  project(before: Offer | null, event) {
    if (event.type === "offer.made") return { ...event.data, seen: 0 };
    return before && { ...before, seen: before.seen + 1 };
  },
});

/** A database with a projector of the model. */
async function open() {
  const own = await testDatabase();
  const { database } = own;
  const parts = await syncParts(database, { models: [model] });
  await database.interactive((tx) => recordStart(tx, parts.context));
  const projector: Projector = parts.project(model);
  return {
    database,
    parts,
    projector,
    /** Every event so far is projected. */
    async projected() {
      const head = await parts.authority.head();
      await vi.waitFor(() => expect(projector.state().position).toBe(head), {
        timeout: 30_000,
        interval: 20,
      });
    },
    async [Symbol.asyncDispose]() {
      await parts[Symbol.asyncDispose]();
      await own[Symbol.asyncDispose]();
    },
  };
}

let ids = 0;
async function append(
  { authority }: SyncParts,
  streamId: string,
  type: string,
  data: object = {},
): Promise<void> {
  const events = [{ event_id: `e${++ids}`, type, data: data as Record<string, string> }];
  await authority.append({ stream: offers, streamId, events, org: "acme", actor: "ada" });
}
const viewer = { org: "acme", subject: "ada" };
const listed = async (database: Database) => {
  const page = { limit: 100, maxBytes: 1 << 20 };
  const { documents } = await listDocuments(database, model, viewer, { filters: new Map() }, page);
  return documents.map(({ docKey }) => docKey);
};
const stored = (database: Database) =>
  database.query({ text: "SELECT doc_key, deleted FROM runtime.sync_offers ORDER BY doc_key" });
const entries = (database: Database) =>
  database.query({ text: "SELECT doc_key FROM runtime.sync_expiries ORDER BY doc_key" });

test("an expired document is not listed, and is deleted with a tombstone; others stay", async () => {
  await using world = await open();
  const { database, parts, projected } = world;
  await append(parts, "old", "offer.made", { until: PAST });
  await append(parts, "new", "offer.made", { until: FUTURE });
  await append(parts, "always", "offer.made");
  await projected();
  expect(await listed(database)).toEqual(["offer:always", "offer:new"]);
  expect(await findDocument(database, model, "offer:old", viewer)).toBeUndefined();
  const search = { search: "offer", after: "", limit: 10 };
  const found = await searchDocuments(database, model, viewer, search);
  expect(found.documents.map((document) => document.doc_key)).toEqual(["offer:always", "offer:new"]);
  expect(await findDocument(database, model, "offer:new", viewer)).toBeDefined();
  expect(await deleteExpired(database, model, true)).toBe(1);
  expect((await journalOf(database, model.topic)).at(-1)).toMatchObject({ key: "offer:old", op: "delete" });
  expect(await stored(database)).toContainEqual({ doc_key: "offer:old", deleted: true });
  expect(await entries(database)).toEqual([{ doc_key: "offer:new" }]);
  expect(await deleteExpired(database, model, true)).toBe(0);
});

test("an event sees an expired document as missing, deleted or not yet, and a rebuild gives the same", async () => {
  await using world = await open();
  const { database, parts, projected } = world;
  await append(parts, "a", "offer.made", { until: PAST });
  await projected();
  await append(parts, "a", "offer.seen");
  await projected();
  expect(await journalOf(database, model.topic)).toHaveLength(1);
  await deleteExpired(database, model, true);
  await append(parts, "a", "offer.seen");
  await append(parts, "b", "offer.made", { until: FUTURE });
  await projected();
  const before = await journalOf(database, model.topic);
  expect(before.map(({ key, op }) => [key, op])).toEqual([
    ["offer:a", "upsert"],
    ["offer:a", "delete"],
    ["offer:b", "upsert"],
  ]);
  await reproject(database, parts.context, model, { inline: true });
  expect(await journalOf(database, model.topic)).toEqual(before);
  // It may be made again, above its old versions.
  await append(parts, "a", "offer.made", { until: FUTURE });
  await projected();
  expect(await listed(database)).toEqual(["offer:a", "offer:b"]);
  expect((await journalOf(database, model.topic)).at(-1)).toMatchObject({ key: "offer:a", version: 3n });
});

test("keeps a document whose expiry was removed or postponed", async () => {
  await using world = await open();
  const { database, parts, projected } = world;
  for (const id of ["a", "b"]) await append(parts, id, "offer.made", { until: PAST });
  await append(parts, "a", "offer.made");
  await append(parts, "b", "offer.made", { until: FUTURE });
  await projected();
  expect(await deleteExpired(database, model, true)).toBe(0);
  expect(await listed(database)).toEqual(["offer:a", "offer:b"]);
  expect(await entries(database)).toEqual([{ doc_key: "offer:b" }]);
});

test("deletes many expired documents in bounded steps", async () => {
  await using world = await open();
  const { database, parts, projected } = world;
  const made = Array.from({ length: EXPIRED_BATCH + 5 }, (_, i) =>
    append(parts, `o${i}`, "offer.made", { until: PAST }),
  );
  await Promise.all(made);
  await projected();
  expect(await deleteExpired(database, model, true)).toBe(EXPIRED_BATCH);
  expect(await deleteExpired(database, model, true)).toBe(5);
  expect(await listed(database)).toEqual([]);
});

test("sets aside a stream with an invalid expiry", async () => {
  await using world = await open();
  const { parts, projector, projected } = world;
  await append(parts, "a", "offer.made", { until: "tomorrow" });
  await projected();
  expect(projector.state().failed).toBe(1);
});
