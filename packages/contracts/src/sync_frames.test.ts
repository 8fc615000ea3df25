import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import {
  createRegistry,
  type DescMessage,
  equals,
  fromBinary,
  fromJson,
  toBinary,
  toJson,
} from "@bufbuild/protobuf";
import { base64Decode, base64Encode } from "@bufbuild/protobuf/wire";
import { describe, expect, test } from "vitest";
import { canonicalJson } from "./canonical.ts";
import { file_openagents_sync_v1_http } from "./gen/openagents/sync/v1/http_pb.ts";
import { file_openagents_sync_v1_sync } from "./gen/openagents/sync/v1/sync_pb.ts";

type Json = null | string | number | boolean | Json[] | { [key: string]: Json };

interface Vector {
  name: string;
  message: string;
  json: Json;
  proto_hex: string;
  decode_only?: true;
}

const file = new URL("../../../proto/vectors/sync_frames.json", import.meta.url);
const vectors: { cases: Vector[] } = JSON.parse(readFileSync(file, "utf8"));
const registry = createRegistry(file_openagents_sync_v1_sync, file_openagents_sync_v1_http);

function schemaOf(name: string): DescMessage {
  const schema = registry.getMessage(name);
  if (schema === undefined) throw new Error(`no message ${name}`);
  return schema;
}

/** Applies `change` to every payload: the one place where the JSON is not the proto3 mapping. */
function mapPayloads(schema: DescMessage, json: Json, change: (payload: Json) => Json): Json {
  if (json === null || typeof json !== "object" || Array.isArray(json)) return json;
  const entries = Object.entries(json).map(([key, value]): [string, Json] => {
    const field = schema.fields.find(({ name, jsonName }) => name === key || jsonName === key);
    if (field?.name === "payload") return [key, change(value)];
    const inner = field?.message;
    if (inner === undefined) return [key, value];
    if (Array.isArray(value)) return [key, value.map((item) => mapPayloads(inner, item, change))];
    return [key, field?.fieldKind === "message" ? mapPayloads(inner, value, change) : value];
  });
  return Object.fromEntries(entries);
}

const toBase64 = (payload: Json) => base64Encode(new TextEncoder().encode(canonicalJson(payload)));
const fromBase64 = (payload: Json): Json =>
  JSON.parse(new TextDecoder().decode(base64Decode(String(payload))));

const read = (schema: DescMessage, json: Json) => fromJson(schema, mapPayloads(schema, json, toBase64));

/** Every object of the JSON that has a payload and its hash. */
function hashed(json: Json): { payload: Json; payload_hash: Json }[] {
  if (json === null || typeof json !== "object") return [];
  if (Array.isArray(json)) return json.flatMap(hashed);
  const { payload, payload_hash } = json;
  const own = payload === undefined || payload_hash === undefined ? [] : [{ payload, payload_hash }];
  return [...own, ...Object.values(json).flatMap(hashed)];
}

describe("the shared vectors", () => {
  test.each(vectors.cases)("$name", ({ message, json, proto_hex, decode_only }) => {
    const schema = schemaOf(message);
    const bytes = Uint8Array.from(Buffer.from(proto_hex, "hex"));
    const decoded = fromBinary(schema, bytes);
    expect(equals(schema, read(schema, json), decoded)).toBe(true);
    expect(Buffer.from(toBinary(schema, read(schema, json))).toString("hex")).toBe(proto_hex);
    if (!decode_only) {
      const written = toJson(schema, decoded, { useProtoFieldName: true });
      expect(mapPayloads(schema, written, fromBase64)).toEqual(json);
    }
    for (const { payload, payload_hash } of hashed(json)) {
      expect(createHash("sha256").update(canonicalJson(payload)).digest("hex")).toBe(payload_hash);
    }
  });

  test("hold every message of the sync channel and of its HTTP side", () => {
    const all = [...registry].flatMap((type) => (type.kind === "message" ? [type.typeName] : []));
    const covered = new Set(vectors.cases.map(({ message }) => message));
    expect(all.filter((name) => !covered.has(name))).toEqual([]);
  });

  test("hold every body of a frame", () => {
    const bodies = schemaOf("openagents.sync.v1.Frame").fields.map(({ name }) => name);
    const frames = vectors.cases.filter(({ message }) => message === "openagents.sync.v1.Frame");
    const covered = new Set(frames.flatMap(({ json }) => Object.keys(json ?? {})));
    expect(bodies.filter((name) => !covered.has(name))).toEqual([]);
  });
});
