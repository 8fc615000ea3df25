import { createHash } from "node:crypto";
import { KhalaError } from "@khala/contracts";
import type { Model } from "../../sync/model.ts";
import { filterFields, KEY_FIELD } from "../../sync/model_fields.ts";
import { docKeyOf, type PartField, readPart, type TopicPart } from "../../sync/part.ts";
import type { ListPlace, ListQuery } from "../../sync/read/list.ts";
import { readLimit, readText } from "./read_request.ts";

/** The parameters of a list request. */
export interface ReadList {
  readonly query: ListQuery;
  /** The part of the topic that it is of. */
  readonly part: TopicPart | undefined;
  readonly limit: number;
  readonly after: ListPlace | undefined;
  /** The `next` of an answer that ends at a place. */
  readonly nextOf: (place: ListPlace) => string;
}

const MAX_VALUE = 1_000;
const MAX_PLACE = 8_000;

/** Reads the parameters of a list; throws invalid_request for what the model does not declare. */
export function readList(model: Model, sent: unknown): ReadList {
  const params = (sent ?? {}) as Record<string, unknown>;
  const filters = new Map<string, string>();
  const fields: PartField[] = [];
  for (const [name, value] of Object.entries(params)) {
    if (["order", "limit", "after"].includes(name)) continue;
    const field = name.startsWith("filter.") ? name.slice("filter.".length) : undefined;
    const isPart = name === KEY_FIELD || model.by.includes(name);
    if (field === undefined && !isPart) throw unknownParameter(model, name);
    if (field !== undefined && !filterFields(model).includes(field)) throw unknownFilter(model, name);
    const text = readText(value, name, MAX_VALUE) ?? "";
    if (field !== undefined) filters.set(field, text);
    else fields.push({ field: name, value: text });
  }
  const part = readPart(model, fields);
  const docKey = part && docKeyOf(part);
  for (const { field, value } of docKey === undefined ? fields : []) {
    if ((filters.get(field) ?? value) !== value)
      throw new KhalaError("invalid_request", `filter.${field} contradicts ${field}. Send one of them.`, {
        field: `filter.${field}`,
      });
    filters.set(field, value);
  }
  const query = {
    order: readOrder(model, params.order),
    filters: new Map([...filters].sort()),
    docKey,
  };
  const places = placesOf(model, query);
  return {
    query,
    part,
    limit: readLimit(params.limit),
    after: places.read(params.after),
    nextOf: places.write,
  };
}

function readOrder({ topic, orderBy }: Model, sent: unknown): string | undefined {
  const order = readText(sent, "order", MAX_VALUE);
  if (order === undefined || orderBy.includes(order)) return order;
  const declared = orderBy.length > 0 ? `${topic} declares ${orderBy.join(", ")}` : `${topic} declares none`;
  const message = `There is no order ${JSON.stringify(order.slice(0, 100))}: ${declared}. Declare it in orderBy of its model.`;
  throw new KhalaError("invalid_request", message, { field: "order" });
}

function unknownFilter(model: Model, name: string): KhalaError {
  const declared = filterFields(model).map((field) => `filter.${field}`);
  const message = `There is no ${name.slice(0, 100)}: ${model.topic} declares ${declared.join(", ") || "no filters"}. Declare it in filter of its model.`;
  return new KhalaError("invalid_request", message, { field: name.slice(0, 100) });
}

function unknownParameter(model: Model, name: string): KhalaError {
  const known = ["order", "limit", "after", KEY_FIELD, ...model.by];
  for (const field of filterFields(model)) known.push(`filter.${field}`);
  const message = `There is no parameter ${JSON.stringify(name.slice(0, 100))}. A list of ${model.topic} has ${known.join(", ")}.`;
  return new KhalaError("invalid_request", message, { field: name.slice(0, 100) });
}

/** Reads and writes `after`: a place of this list, with a checksum, so that a damaged one is not taken for a place elsewhere. */
function placesOf(model: Model, { order = "", filters, docKey = "" }: ListQuery) {
  const list = JSON.stringify([model.topic, order, [...filters], docKey]);
  const sum = (place: string) => createHash("sha256").update(`${list} ${place}`).digest("hex").slice(0, 12);
  return {
    write({ sortKey, docKey: key }: ListPlace): string {
      const place = JSON.stringify([sortKey, key]);
      return Buffer.from(sum(place) + place).toString("base64url");
    },
    read(sent: unknown): ListPlace | undefined {
      if (sent === undefined || sent === "") return undefined;
      if (typeof sent === "string" && sent.length <= MAX_PLACE) {
        const text = Buffer.from(sent, "base64url").toString();
        const place = text.slice(12);
        if (text.slice(0, 12) === sum(place) && Buffer.from(text).toString("base64url") === sent) {
          const [sortKey, key] = JSON.parse(place) as [string, string];
          return { sortKey, docKey: key };
        }
      }
      const message =
        "after must be the unchanged `next` of the previous page, with the same order and filters.";
      throw new KhalaError("invalid_request", message, { field: "after" });
    },
  };
}
