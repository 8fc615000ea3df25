import type { Artifact } from "./board_types.ts";

/** Fields that name a thing, the best first. */
const NAMES = ["title", "topic", "name", "subject", "summary", "text", "label", "message"];
const MAX_LENGTH = 120;

/** What an artifact is about, by its payload; undefined if no field of it says so. */
export function labelOf({ payload }: Pick<Artifact, "payload">): string | undefined {
  if (typeof payload === "string") return payload.trim().slice(0, MAX_LENGTH) || undefined;
  if (typeof payload !== "object" || payload === null) return undefined;
  const fields = new Map(Object.entries(payload));
  const found = NAMES.map((name) => fields.get(name)).find(isText);
  return found?.trim().slice(0, MAX_LENGTH);
}

function isText(value: unknown): value is string {
  return typeof value === "string" && value.trim() !== "";
}
