import { KhalaError } from "@khala/contracts";
import { ManualClock } from "@khala/test-support/kit/manual_clock";
import type { StandardSchemaV1 } from "@standard-schema/spec";
import { type } from "arktype";
import fc from "fast-check";
import * as v from "valibot";
import { describe, expect, test } from "vitest";
import { z } from "zod";
import type { ArtifactDraft } from "../model/artifact.ts";
import { DRAFT_LIMITS, type DraftRules, makeArtifacts } from "./drafts.ts";

const AUTHOR = { org: "org-1", producedBy: "user:u-1", depth: 0 };
const ID = "01890a5d-ac96-774b-bcce-b302099a8057";

function rules(more: Partial<DraftRules> = {}): DraftRules {
  return { schemas: {}, clock: new ManualClock(), newId: (index) => `id-${index}`, ...more };
}

async function refusal(drafts: readonly unknown[], more: Partial<DraftRules> = {}): Promise<KhalaError> {
  try {
    await makeArtifacts(drafts as ArtifactDraft[], AUTHOR, rules(more));
  } catch (error) {
    if (error instanceof KhalaError) return error;
    throw error;
  }
  throw new Error("was not refused");
}

test("makes an artifact of a draft, with the fields the board adds", async () => {
  const made = await makeArtifacts([{ type: "Draft", payload: { text: "hi" } }], AUTHOR, rules());
  expect(made).toEqual([
    {
      artifact: {
        id: "id-0",
        type: "Draft",
        payload: { text: "hi" },
        tags: [],
        produced_by: "user:u-1",
        visibility: { kind: "org" },
        version: 1,
        created_at: "2026-01-01T00:00:00.000Z",
        org_id: "org-1",
        depth: 0,
      },
    },
  ]);
});

test("keeps the fields of a draft, its id in lower case, and inherits trace and correlation", async () => {
  const visibility = { kind: "labelled", labels: ["legal"] };
  const draft = {
    id: ID.toUpperCase(),
    type: "Draft",
    payload: null,
    tags: ["a"],
    visibility,
    version: 3,
    partition_key: "p",
  };
  const author = { ...AUTHOR, depth: 4, trace: "00-a-b-01", correlationId: "c-1" };
  const [one, two] = await makeArtifacts(
    [draft, { type: "Draft", payload: 1, correlation_id: "own" }],
    author,
    rules(),
  );
  expect(one?.artifact).toMatchObject({
    ...draft,
    id: ID,
    correlation_id: "c-1",
    traceparent: "00-a-b-01",
    depth: 4,
  });
  expect(two?.artifact.correlation_id).toBe("own");
});

test("treats null and the empty text as absent", async () => {
  const draft = {
    id: null,
    type: "Draft",
    payload: 0,
    tags: null,
    correlation_id: "",
    partition_key: null,
    version: null,
  };
  const [made] = await makeArtifacts([draft as never], AUTHOR, rules());
  expect(made?.artifact).not.toHaveProperty("correlation_id");
  expect(made?.artifact).not.toHaveProperty("partition_key");
  expect(made?.artifact).toMatchObject({ id: "id-0", tags: [], version: 1 });
});

test("keeps a future not_before, and drops a past one", async () => {
  const at = (not_before: string) => ({ type: "Draft", payload: 0, not_before });
  const made = await makeArtifacts(
    [at("2026-01-01T01:00:00Z"), at("2026-01-01T02:30:00.5+01:30"), at("2025-12-31T00:00:00Z")],
    AUTHOR,
    rules(),
  );
  const hour = Date.UTC(2026, 0, 1, 1);
  expect(made.map(({ notBefore }) => notBefore)).toEqual([hour, hour + 500, undefined]);
});

// biome-ignore format: one case is one line.
const wrong: [string, object, string][] = [
  ["no type", { type: undefined }, "type"],
  ["a type with a space", { type: "my draft" }, "type"],
  ["a type that is too long", { type: "x".repeat(129) }, "type"],
  ["an id that is no UUID", { id: "draft-1" }, "id"],
  ["a number as id", { id: 7 }, "id"],
  ["no payload", { payload: undefined }, "payload"],
  ["a correlation_id that is too long", { correlation_id: "x".repeat(257) }, "correlation_id"],
  ["a partition_key with NUL", { partition_key: "a\0" }, "partition_key"],
  ["a partition_key with half a pair", { partition_key: "\ud800" }, "partition_key"],
  ["a partition_key that is a number", { partition_key: 7 }, "partition_key"],
  ["tags that are a text", { tags: "a" }, "tags"],
  ["too many tags", { tags: Array.from({ length: 33 }, (_, i) => `t${i}`) }, "tags"],
  ["a tag twice", { tags: ["a", "b", "a"] }, "tags[2]"],
  ["an empty tag", { tags: ["a", ""] }, "tags[1]"],
  ["a tag that is too long", { tags: ["x".repeat(65)] }, "tags[0]"],
  ["a visibility that is a text", { visibility: "org" }, "visibility"],
  ["an unknown visibility", { visibility: { kind: "secret" } }, "visibility.kind"],
  ["labelled without labels", { visibility: { kind: "labelled" } }, "visibility.labels"],
  ["private without agents", { visibility: { kind: "private", agents: [] } }, "visibility.agents"],
  ["labels on what is public", { visibility: { kind: "public", labels: ["a"] } }, "visibility.labels"],
  ["an agent that cannot be", { visibility: { kind: "private", agents: ["a b"] } }, "visibility.agents[0]"],
  ["another field of visibility", { visibility: { kind: "org", org: "x" } }, "visibility.org"],
  ["version 0", { version: 0 }, "version"],
  ["version 1.5", { version: 1.5 }, "version"],
  ["a version that is a text", { version: "2" }, "version"],
  ["not_before without a zone", { not_before: "2026-01-01T00:00:00" }, "not_before"],
  ["not_before on February 30", { not_before: "2026-02-30T00:00:00Z" }, "not_before"],
  ["not_before at 25:00", { not_before: "2026-01-01T25:00:00Z" }, "not_before"],
  ["a field that the board sets", { produced_by: "user:root" }, "produced_by"],
  ["NUL in the payload", { payload: { a: ["x\0"] } }, "payload"],
  ["half a pair in the payload", { payload: { a: ["\ud800"] } }, "payload.a[0]"],
  ["half a pair in a key of the payload", { payload: { "\ud800": 1 } }, "payload"],
  ["a date in the payload", { payload: { when: new Date() } }, "payload.when"],
  ["NaN in the payload", { payload: [Number.NaN] }, "payload[0]"],
  ["a payload that is nested without end", { payload: JSON.parse("[".repeat(200) + "]".repeat(200)) }, "payload"],
];

test.each(wrong)("%s is refused, with the name of the field", async (_, part, field) => {
  const good = { type: "Draft", payload: {} };
  const error = await refusal([good, { ...good, ...part }]);
  expect(error.code).toBe("invalid_request");
  expect(error.details.items).toHaveLength(1);
  expect(error.details.items?.[0]).toMatchObject({ index: 1 });
  expect(error.details.items?.[0]?.field.startsWith(field)).toBe(true);
  expect(error.details.field).toBe(`artifacts[1].${error.details.items?.[0]?.field}`);
  expect(error.message).toContain("1 of 2 are wrong, none is published");
});

test.each([null, 7, "Draft", [], undefined])("%j is not a draft", async (draft) => {
  const error = await refusal([draft]);
  expect(error.details).toMatchObject({ field: "artifacts[0]", items: [{ index: 0, field: "" }] });
});

test("accepts a backslash before u0000, which is not the character NUL", async () => {
  const payload = { path: "C:\\u0000", twice: "\\\\u0000" };
  const [made] = await makeArtifacts([{ type: "Draft", payload }], AUTHOR, rules());
  expect(made?.artifact.payload).toEqual(payload);
});

test("names every invalid field in one error", async () => {
  const error = await refusal([
    { type: "", payload: 1, tags: 7 },
    { type: "Draft", payload: 1 },
    { type: "Draft" },
  ]);
  expect(error.details.items?.map(({ index, field }) => [index, field])).toEqual([
    [0, "type"],
    [0, "tags"],
    [2, "payload"],
  ]);
});

test("refuses a payload over the limit as payload_too_large, by the bytes of its JSON, with the item", async () => {
  const limits = { payloadBytes: 12 };
  await makeArtifacts([{ type: "Draft", payload: "0123456789" }], AUTHOR, rules({ limits }));
  const error = await refusal(
    [
      { type: "Draft", payload: "" },
      { type: "Draft", payload: "012345678é" },
    ],
    { limits },
  );
  expect(error).toMatchObject({ code: "payload_too_large", details: { field: "artifacts[1].payload" } });
  expect(error.message).toContain("13 bytes of 12");
});

test("by default a Kafka record has room for the payload and the rest of the artifact", () => {
  expect(DRAFT_LIMITS.payloadBytes).toBeLessThanOrEqual((1 << 20) - (64 << 10));
});

test("refuses more drafts than the limit", async () => {
  const drafts = Array.from({ length: 3 }, () => ({ type: "Draft", payload: 0 }));
  expect((await refusal(drafts, { limits: { drafts: 2 } })).message).toBe(
    "A request may publish at most 2 artifacts. Send several requests.",
  );
});

test("refuses a repeated id and version, and accepts two versions of one id", async () => {
  const draft = { id: ID, type: "Draft", payload: 0 };
  const error = await refusal([draft, { ...draft, id: ID.toUpperCase() }]);
  expect(error.details.field).toBe("artifacts[1].id");
  expect(await makeArtifacts([draft, { ...draft, version: 2 }], AUTHOR, rules())).toHaveLength(2);
});

describe.each([
  ["zod", z.object({ title: z.string(), pages: z.number().default(1) })],
  ["valibot", v.object({ title: v.string(), pages: v.optional(v.number(), 1) })],
  ["arktype", type({ title: "string", pages: "number = 1" })],
] as [string, StandardSchemaV1][])("with a schema of %s", (_, schema) => {
  const schemas = { Draft: schema };

  test("publishes the payload that the schema returns", async () => {
    const [made] = await makeArtifacts(
      [{ type: "Draft", payload: { title: "a" } }],
      AUTHOR,
      rules({ schemas }),
    );
    expect(made?.artifact.payload).toEqual({ title: "a", pages: 1 });
  });

  test("refuses a payload that does not match, with the path", async () => {
    const error = await refusal([{ type: "Draft", payload: { title: 7 } }], { schemas });
    expect(error.details.items?.[0]?.field).toBe("payload.title");
    expect(error.details.items?.[0]?.message).not.toBe("");
  });

  test("accepts types without a schema", async () => {
    const drafts = [{ type: "Other", payload: 7 }];
    expect(await makeArtifacts(drafts, AUTHOR, rules({ schemas }))).toHaveLength(1);
  });
});

test("awaits an asynchronous schema", async () => {
  const schemas = { Draft: z.string().refine(async (text) => text !== "taken", "is taken") };
  const check = (payload: string) => makeArtifacts([{ type: "Draft", payload }], AUTHOR, rules({ schemas }));
  expect(await check("free")).toHaveLength(1);
  await expect(check("taken")).rejects.toThrow("artifacts[0].payload is taken.");
});

test("times out a schema that never answers", async () => {
  const clock = new ManualClock();
  const schemas = { Draft: z.string().refine(() => new Promise<boolean>(() => undefined)) };
  const refused = refusal([{ type: "Draft", payload: "a" }], { schemas, clock });
  await clock.advance(DRAFT_LIMITS.schemaMs);
  expect((await refused).message).toContain("did not answer within 5000 ms");
  expect(clock.pending).toBe(0);
});

test("refuses a payload whose schema throws, or returns something other than JSON", async () => {
  const broken = z.string().transform(() => {
    throw new Error("broken rule");
  });
  const dated = z.string().transform((text) => new Date(text));
  const draft = { type: "Draft", payload: "2026-01-01" };
  expect((await refusal([draft], { schemas: { Draft: broken } })).message).toContain("broken rule");
  expect((await refusal([draft], { schemas: { Draft: dated } })).message).toContain(
    "Date is not a plain object",
  );
});

test("a type with the name of an object method has no schema", async () => {
  const drafts = [{ type: "constructor", payload: 1 }];
  expect(await makeArtifacts(drafts, AUTHOR, rules())).toHaveLength(1);
});

test("makes an artifact of any draft, or refuses it with items", async () => {
  const field = fc.anything({ withNullPrototype: true, withDate: true, withBigInt: true, withMap: true });
  const draft = fc.oneof(
    field,
    fc.record(
      {
        id: fc.oneof(fc.uuid(), field),
        type: fc.oneof(fc.constant("Draft"), field),
        payload: fc.oneof(fc.jsonValue({ noUnicodeString: false }), field),
        tags: fc.oneof(fc.array(fc.string()), field),
        visibility: field,
        version: fc.oneof(fc.integer(), field),
        not_before: fc.oneof(fc.date({ noInvalidDate: true }).map(String), field),
        correlation_id: fc.oneof(fc.string({ unit: "binary" }), field),
      },
      { requiredKeys: ["type", "payload"] },
    ),
  );
  await fc.assert(
    fc.asyncProperty(fc.array(draft, { maxLength: 5 }), async (drafts) => {
      try {
        const made = await makeArtifacts(drafts as ArtifactDraft[], AUTHOR, rules());
        expect(made).toHaveLength(drafts.length);
        for (const { artifact } of made)
          expect(JSON.parse(JSON.stringify(artifact)).type).toBe(artifact.type);
      } catch (error) {
        if (!(error instanceof KhalaError)) throw error;
        expect(error.details.items?.length).toBeGreaterThan(0);
      }
    }),
    { numRuns: 50 },
  );
});
