import { KhalaError } from "@khala/contracts";
import type { Artifact, ArtifactDraft } from "../model/artifact.ts";
import { derivedId } from "../model/derived_id.ts";
import { FatalError } from "../model/errors.ts";
import { producer } from "../model/names.ts";
import type { Task } from "../model/task.ts";
import { workKey } from "../model/task.ts";
import { type DraftRules, type MadeArtifact, makeArtifacts } from "../publish/drafts.ts";

/** An agent returned outputs that cannot be published. */
class InvalidOutputError extends FatalError {
  override readonly name = "InvalidOutputError";
}

/** A chain of agents is too long. */
class ChainTooLongError extends FatalError {
  override readonly name = "ChainTooLongError";
}

/** How outputs are validated. */
export interface OutputRules extends Omit<DraftRules, "newId" | "label"> {
  /** The longest chain of agents. */
  readonly maxDepth: number;
  /** Schedules outputs for later; without it outputs with `not_before` are refused. */
  readonly later?: (outputs: readonly MadeArtifact[]) => Promise<void>;
}

const NOTHING: readonly Artifact[] = [];

/**
 * The artifacts that an attempt publishes. Their ids are derived from the task's idempotency key, so that a second run
 * publishes the same ids and they become visible once.
 */
export async function outputArtifacts(
  output: unknown,
  task: Task,
  trace: string | undefined,
  rules: OutputRules,
): Promise<readonly Artifact[]> {
  const drafts = listed(output, task.agent);
  if (drafts.length === 0) return NOTHING;
  const [first] = task.artifacts;
  const depth = Math.max(...task.artifacts.map((artifact) => artifact.depth ?? 0)) + 1;
  if (depth > rules.maxDepth) throw tooLong(task.agent, rules.maxDepth);
  const key = workKey(task);
  const author = {
    org: first.org_id,
    producedBy: producer(task.agent),
    trace,
    depth,
    // Outputs share the correlation of their input, even if its publisher did not set one.
    correlationId: first.correlation_id || first.id,
  };
  const newId = (index: number) => derivedId(first.id, `${key}:${index}`);
  const made = await makeArtifacts(drafts, author, { ...rules, newId, label: "outputs" }).catch(
    (error: unknown) => {
      if (!(error instanceof KhalaError)) throw error;
      throw new InvalidOutputError(
        `Agent "${task.agent}" returned what cannot be published: ${error.message}`,
      );
    },
  );
  const delayed = made.filter(({ notBefore }) => notBefore !== undefined);
  if (delayed.length > 0) await keep(delayed, rules);
  return made.filter(({ notBefore }) => notBefore === undefined).map(({ artifact }) => artifact);
}

async function keep(delayed: readonly MadeArtifact[], { later }: OutputRules): Promise<void> {
  if (!later) throw new InvalidOutputError("not_before is not for outputs here: publish it from outside.");
  await later(delayed);
}

function listed(output: unknown, agent: string): readonly ArtifactDraft[] {
  if (output === undefined || output === null) return [];
  if (Array.isArray(output)) return output;
  if (typeof output === "object") return [output];
  throw new InvalidOutputError(
    `Agent "${agent}" returned a ${typeof output}: return an artifact such as {type: "Review", payload}, a list of them, or nothing.`,
  );
}

function tooLong(agent: string, maxDepth: number): ChainTooLongError {
  return new ChainTooLongError(
    `The output of agent "${agent}" is more than ${maxDepth} agents away from the first artifact. If that is no endless loop, raise KHALA_BOARD_DEPTH.`,
  );
}
