import { canonicalJson } from "@khala/contracts";
import type { FailureJson, SettleRequestJson } from "@khala/contracts/blackboard/v1";
import type { ArtifactDraft } from "../model/artifact.ts";
import { FatalError, RateLimitedError, RetryableError } from "../model/errors.ts";

/** A settlement as it is stored: the same text for the same settlement. */
export function settlementText({ outputs = [], failure, retry_after_ms }: SettleRequestJson): string {
  return canonicalJson({
    outputs,
    ...(failure && { failure }),
    ...(retry_after_ms !== undefined && { retry_after_ms }),
  });
}

/** The outputs of a settlement; what went wrong with the work is thrown as an agent in this process would throw it. */
export function outputsOf(settlement: string): readonly ArtifactDraft[] {
  const { outputs = [], failure, retry_after_ms = 0 } = JSON.parse(settlement) as SettleRequestJson;
  if (failure) throw errorOf(failure, retry_after_ms);
  return outputs;
}

function errorOf(failure: FailureJson, retryAfterMs: number): Error {
  const { kind, message = "", class: name = "Error", stack } = failure;
  const error =
    kind === "fatal"
      ? new FatalError(message)
      : kind === "rate_limited"
        ? new RateLimitedError(message, retryAfterMs)
        : new RetryableError(message);
  // Whoever looks at the dead letter wants to see what the worker saw.
  Object.defineProperty(error, "name", { value: name });
  error.stack = stack ?? `${name}: ${message}`;
  return error;
}
