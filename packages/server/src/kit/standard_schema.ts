import type { StandardJSONSchemaV1, StandardSchemaV1 } from "@standard-schema/spec";
import type { Clock } from "./clock.ts";
import { withTimeout } from "./timeout.ts";

/** Schemas by name: zod, valibot, arktype, or anything that is a Standard Schema. */
export type Schemas = Readonly<Record<string, StandardSchemaV1>>;

/** The JSON form of a value: a Date becomes text. */
export type Stored<T> = 0 extends 1 & T
  ? T
  : T extends { toJSON(): infer Json }
    ? Json
    : T extends bigint | symbol | ((...args: never[]) => unknown)
      ? never
      : T extends object
        ? { [Key in keyof T]: Stored<T[Key]> }
        : T;

/** Whether a value is a Standard Schema. Those of arktype are functions. */
export function isStandardSchema(value: unknown): value is StandardSchemaV1 {
  if ((typeof value !== "object" && typeof value !== "function") || value === null) return false;
  const { "~standard": standard } = value as { "~standard"?: { version?: unknown; validate?: unknown } };
  return standard?.version === 1 && typeof standard.validate === "function";
}

/** The JSON Schema of a schema; undefined where the library does not provide it. Throws for types that JSON cannot represent. */
export function inputJsonSchema(schema: StandardSchemaV1): Readonly<Record<string, unknown>> | undefined {
  const { jsonSchema } = schema["~standard"] as Partial<StandardJSONSchemaV1["~standard"]>;
  return jsonSchema?.input({ target: "draft-2020-12" });
}

/** The values a schema refuses, with the path as `.a.b[3]`. */
export interface SchemaIssue {
  readonly path: string;
  readonly message: string;
}

/** A value after a schema's defaults and conversions, or why it is refused. */
export type Validated<T> =
  | { readonly value: T; readonly issues?: undefined }
  | { readonly issues: readonly SchemaIssue[] };

export interface ValidateOptions {
  readonly clock: Clock;
  /** How long an asynchronous schema may take. */
  readonly timeoutMs: number;
}

/** Validates a value with any Standard Schema. A schema that throws or takes too long is an issue of its own. */
export async function validate<T>(
  schema: StandardSchemaV1<unknown, T>,
  value: unknown,
  { clock, timeoutMs }: ValidateOptions,
): Promise<Validated<T>> {
  try {
    const answer = schema["~standard"].validate(value);
    const result = answer instanceof Promise ? await inTime(answer, clock, timeoutMs) : answer;
    if (!result.issues) return { value: result.value };
    return { issues: result.issues.map(({ path = [], message }) => ({ path: pathOf(path), message })) };
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    return { issues: [{ path: "", message: `could not be checked: ${reason}` }] };
  }
}

const LATE = Symbol("late");

/** The answer of a schema that needs time, or an error when it needs too much. */
export async function inTime<T>(answer: Promise<T>, clock: Clock, ms: number): Promise<T> {
  const result = await withTimeout<T | typeof LATE>(clock, ms, answer, LATE);
  if (result === LATE) throw new Error(`the schema did not answer within ${ms} ms`);
  return result;
}

/** The path of an issue as `.a.b[3]`, bounded. */
export function pathOf(path: StandardSchemaV1.Issue["path"] = []): string {
  return path
    .map((step) => (typeof step === "object" ? step.key : step))
    .map((step) => (typeof step === "number" ? `[${step}]` : `.${String(step)}`))
    .join("")
    .slice(0, 200);
}
