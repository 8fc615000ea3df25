import type { EndedSpan } from "../../kit/span_ring.ts";

const TYPE = "artifact.type";
const AGENT = "khala.agent";
/** More would not fit into a line. */
const MAX_NAMED = 3;

/** A trace's name in a list: "Topic → Article · illustrator failed", "Conversation c1 · failed". */
export function traceName(spans: readonly EndedSpan[]): string {
  const byStart = spans.toSorted((a, b) => a.startedAt - b.startedAt);
  const types = [...new Set(byStart.flatMap(({ attributes }) => textOf(attributes[TYPE])))];
  const convId = byStart.flatMap(({ attributes }) => textOf(attributes["gen_ai.conversation.id"]))[0];
  const topic = byStart.flatMap(({ attributes }) => textOf(attributes["khala.topic"]))[0];
  const [first, last] = [types[0], types.at(-1)];
  const path = first === last ? first : `${first} → ${last}`;
  const what =
    [convId && `Conversation ${convId}`, path].filter(Boolean).join(" · ") || topic || byStart[0]?.name || "";
  return [what, failureOf(byStart, what)].filter(Boolean).join(" · ");
}

/** The failed agents, and whether a later attempt of the same agent succeeded. */
function failureOf(spans: readonly EndedSpan[], what: string): string | undefined {
  const failed = spans.filter((span) => span.failed);
  if (failed.length === 0) return undefined;
  const agents = [...new Set(failed.flatMap(({ attributes }) => textOf(attributes[AGENT])))];
  if (agents.length === 0) {
    const [{ name = "" } = {}] = failed;
    return name === what || name === "invoke_agent" ? "failed" : `${name} failed`;
  }
  const lost = agents.filter((agent) => !recovered(spans, agent));
  const named = lost.length > 0 ? lost : agents;
  const more = named.length > MAX_NAMED ? ` and ${named.length - MAX_NAMED} more` : "";
  return `${named.slice(0, MAX_NAMED).join(", ")}${more} ${lost.length > 0 ? "failed" : "retried"}`;
}

/** Whether the last attempt of an agent succeeded. */
function recovered(spans: readonly EndedSpan[], agent: string): boolean {
  const attempts = spans.filter(
    ({ attributes }) => attributes[AGENT] === agent && "khala.attempt" in attributes,
  );
  return attempts.length > 0 && attempts.at(-1)!.failed === false;
}

function textOf(value: unknown): string[] {
  return typeof value === "string" && value !== "" ? [value] : [];
}
