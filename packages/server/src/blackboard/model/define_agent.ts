import { isStandardSchema, type Schemas } from "../../kit/standard_schema.ts";
import type { Agent, AgentOptions, BatchOptions, JoinOptions, RetryOptions } from "./agent.ts";
import type { ArtifactOf, DraftOfType } from "./artifact.ts";
import { AGENT_NAME, ARTIFACT_TYPE, ROUTER } from "./names.ts";

const OPTIONS: { readonly [Option in keyof Required<AgentOptions>]: true } = {
  consumes: true,
  schemas: true,
  where: true,
  tags: true,
  from: true,
  labels: true,
  batch: true,
  join: true,
  concurrency: true,
  key: true,
  order: true,
  strict: true,
  rate: true,
  retry: true,
  timeout: true,
  priority: true,
  selfTrigger: true,
  approval: true,
  expose: true,
  run: true,
};
/** The longest delay of a platform timer: 24.8 days. */
const MAX_MS = 2 ** 31 - 1;
const MAX_LIST = 100;
const MAX_BATCH = 1_000;
const MAX_ATTEMPTS = 1_000;
const MAX_CONCURRENCY = 10_000;

/** Defines an agent. Its options are validated and frozen. Payloads have the types of its `schemas`. */
export function agent<const Type extends string, S extends Schemas = Schemas>(
  name: string,
  given: AgentOptions<S, Type>,
): Agent<DraftOfType<S, Type>, ArtifactOf<S, keyof S & string>> {
  // A board hands an agent artifacts of the types that it consumes, each checked by its schema.
  const options = given as unknown as AgentOptions;
  if (typeof name !== "string" || !AGENT_NAME.test(name)) {
    throw new TypeError(
      `An agent's name must be a letter followed by up to 63 letters, digits, "-" or "_", such as "reviewer", not ${shown(name)}.`,
    );
  }
  if (name === ROUTER)
    throw new TypeError(
      `The name "${ROUTER}" is reserved for the board's router. Give the agent another name.`,
    );
  const check = new Check(name);
  check.fields("", options, Object.keys(OPTIONS));
  const consumes = Object.freeze(
    check.texts("consumes", typeof options.consumes === "string" ? [options.consumes] : options.consumes),
  );
  for (const type of consumes) check.that(ARTIFACT_TYPE.test(type), "consumes", typeRule(type));
  for (const [type, schema] of Object.entries(options.schemas ?? {}))
    check.that(
      isStandardSchema(schema),
      `schemas.${type}`,
      "must be a Standard Schema, such as z.object({ … })",
    );
  check.filters(options);
  check.gathering(options, consumes);
  const { order = "key", strict = false, retry = {} } = options;
  check.that(["key", "partition", "none"].includes(order), "order", `must be "key", "partition" or "none"`);
  check.flag("strict", strict);
  check.that(!strict || order !== "none", "strict", `needs an order: leave out order: "none", or strict`);
  check.flag("selfTrigger", options.selfTrigger);
  check.approval(options.approval);
  if (options.expose) {
    if (typeof options.expose !== "string") check.flag("expose", options.expose);
    const single = consumes.length === 1 && !options.join && !options.batch;
    check.that(single, "expose", "needs an agent that consumes one type, without a batch or a join");
  }
  if (options.rate) {
    check.fields("rate", options.rate, ["limit", "per"]);
    check.whole("rate.limit", options.rate.limit, 1_000_000);
    check.ms("rate.per", options.rate.per);
  }
  return Object.freeze({
    name,
    consumes,
    options: frozenCopy(options),
    order,
    strict,
    concurrency: check.whole("concurrency", options.concurrency ?? 10, MAX_CONCURRENCY),
    priority: check.number("priority", options.priority ?? 0),
    timeoutMs: check.ms("timeout", options.timeout ?? 300_000),
    retry: check.retry(retry),
  });
}

class Check {
  readonly #agent: string;

  constructor(agent: string) {
    this.#agent = agent;
  }

  that(holds: boolean, option: string, rule: string): void {
    if (!holds) throw new TypeError(`Agent "${this.#agent}": ${option} ${rule}.`);
  }

  /** Refuses unknown fields, because a misspelt option would be ignored silently. */
  fields(option: string, value: object, names: readonly string[]): void {
    const what = option || "the second argument";
    this.that(typeof value === "object" && value !== null, what, `must be an object with ${list(names)}`);
    for (const name of Object.keys(value)) {
      const path = option ? `${option}.${name}` : name;
      this.that(names.includes(name), path, `is not an option; the options are ${list(names)}`);
    }
  }

  texts(option: string, value: unknown): string[] {
    const rule = `must be a list of 1 to ${MAX_LIST} different strings, such as ["Draft"]`;
    this.that(Array.isArray(value) && value.length > 0 && value.length <= MAX_LIST, option, rule);
    const texts: unknown[] = [...(value as unknown[])];
    this.that(new Set(texts).size === texts.length, option, rule);
    return texts.map((text) => {
      this.that(typeof text === "string" && text !== "", option, rule);
      return text as string;
    });
  }

  flag(option: string, value: unknown): void {
    this.that(
      value === undefined || typeof value === "boolean",
      option,
      `must be true or false, not ${shown(value)}`,
    );
  }

  approval(value: AgentOptions["approval"]): void {
    if (typeof value !== "object" || value === null) {
      if (typeof value !== "function") this.flag("approval", value);
      return;
    }
    this.fields("approval", value, ["not", "scope"]);
    const { not, scope } = value;
    this.that(
      not === undefined || not === "requester",
      "approval.not",
      `must be "requester", not ${shown(not)}`,
    );
    const rule = `must be the name of a scope, not ${shown(scope)}`;
    this.that(scope === undefined || (typeof scope === "string" && scope !== ""), "approval.scope", rule);
  }

  call(option: string, value: unknown): void {
    const rule = `must be a function, not ${shown(value)}`;
    this.that(value === undefined || typeof value === "function", option, rule);
  }

  number(option: string, value: number): number {
    this.that(Number.isFinite(value), option, `must be a number, not ${shown(value)}`);
    return value;
  }

  whole(option: string, value: number, most: number): number {
    const holds = Number.isInteger(value) && value >= 1 && value <= most;
    this.that(holds, option, `must be a whole number from 1 to ${most}, not ${shown(value)}`);
    return value;
  }

  ms(option: string, value: number): number {
    const holds = Number.isFinite(value) && value > 0 && value <= MAX_MS;
    this.that(
      holds,
      option,
      `must be a number of milliseconds above 0, up to ${MAX_MS}, not ${shown(value)}`,
    );
    return value;
  }

  filters({ where, key, run, tags, labels, from }: AgentOptions): void {
    this.call("where", where);
    this.call("key", key);
    this.call("run", run);
    if (tags !== undefined) this.texts("tags", tags);
    if (labels !== undefined) this.texts("labels", labels);
    for (const each of from === undefined ? [] : this.texts("from", from)) {
      const rule = `must name producers, such as "agent:writer", "user:u-1" or "agent:*" (a star only at the end), not ${shown(each)}`;
      this.that(/^[a-z]+:[^*]*\*?$/.test(each) && !each.endsWith(":"), "from", rule);
    }
  }

  gathering({ batch, join }: AgentOptions, consumes: readonly string[]): void {
    this.that(
      !batch || !join,
      "batch",
      "cannot be combined with join. Keep one of them, or define two agents",
    );
    if (batch) this.#batch(batch);
    if (join) this.#join(join, consumes);
  }

  #batch(batch: BatchOptions): void {
    this.fields("batch", batch, ["size", "timeout"]);
    this.whole("batch.size", batch.size, MAX_BATCH);
    this.ms("batch.timeout", batch.timeout);
  }

  #join(join: JoinOptions, consumes: readonly string[]): void {
    this.fields("join", join, ["by", "types", "within"]);
    const { by = "correlation_id" } = join;
    const rule = `must be "correlation_id" or a function from an artifact to a string, not ${shown(by)}`;
    this.that(by === "correlation_id" || typeof by === "function", "join.by", rule);
    const types = this.texts("join.types", join.types);
    this.that(types.length > 1, "join.types", "must have at least two types; a single type needs no join");
    for (const type of types)
      this.that(
        consumes.includes(type),
        "join.types",
        `has ${shown(type)}, which is not in consumes. Add it there`,
      );
    this.ms("join.within", join.within);
  }

  retry(retry: RetryOptions): Agent["retry"] {
    this.fields("retry", retry, ["attempts", "base", "cap", "classify"]);
    this.call("retry.classify", retry.classify);
    const attempts = this.whole("retry.attempts", retry.attempts ?? 5, MAX_ATTEMPTS);
    const base = this.ms("retry.base", retry.base ?? 1_000);
    const cap = this.ms("retry.cap", retry.cap ?? Math.max(300_000, base));
    this.that(cap >= base, "retry.cap", `must be at least retry.base (${base}), not ${cap}`);
    return Object.freeze({ attempts, base, cap, ...(retry.classify && { classify: retry.classify }) });
  }
}

function typeRule(type: string): string {
  return `must contain types of up to 128 letters, digits, "_", ".", ":" or "-", such as "Draft", not ${shown(type)}`;
}

/** A frozen copy. Lists and groups of options are one level deep. */
function frozenCopy(options: AgentOptions): Readonly<AgentOptions> {
  const copy: Record<string, unknown> = { ...options };
  for (const [name, value] of Object.entries(copy)) {
    if (Array.isArray(value)) copy[name] = Object.freeze([...value]);
    else if (typeof value === "object" && value !== null) copy[name] = frozenGroup(value);
  }
  return Object.freeze(copy as { consumes: AgentOptions["consumes"] });
}

function frozenGroup(group: object): object {
  const entries = Object.entries(group).map(([name, value]) => [
    name,
    Array.isArray(value) ? Object.freeze([...value]) : value,
  ]);
  return Object.freeze(Object.fromEntries(entries));
}

function list(names: readonly string[]): string {
  return names.join(", ");
}

function shown(value: unknown): string {
  if (typeof value === "string") return JSON.stringify(value.slice(0, 100));
  if (value === null || typeof value !== "object") return String(value);
  return Array.isArray(value) ? "a list" : "an object";
}
