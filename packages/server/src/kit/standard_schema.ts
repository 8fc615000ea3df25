import type { StandardSchemaV1 } from "@standard-schema/spec";
import { type Clock, sleep } from "./clock.ts";

/** What a schema does not accept; the path as `.a.b[3]`. */
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

async function inTime<T>(answer: Promise<T>, clock: Clock, ms: number): Promise<T> {
  const done = new AbortController();
  const late = sleep(clock, ms, done.signal).then(() => {
    throw new Error(`the schema did not answer within ${ms} ms`);
  });
  // If the answer arrives first, nobody awaits the timeout's rejection.
  late.catch(() => undefined);
  try {
    return await Promise.race([answer, late]);
  } finally {
    done.abort();
  }
}

/** The path as `.a.b[3]`, bounded. */
function pathOf(path: readonly (PropertyKey | StandardSchemaV1.PathSegment)[]): string {
  return path
    .map((step) => (typeof step === "object" ? step.key : step))
    .map((step) => (typeof step === "number" ? `[${step}]` : `.${String(step)}`))
    .join("")
    .slice(0, 200);
}
