import { KhalaError } from "@khala/contracts";
import { notFound } from "../../access/access.ts";
import { mayOutputReplace } from "../../access/outputs.ts";
import type { Board } from "../board.ts";
import type { Artifact, ArtifactDraft } from "../model/artifact.ts";
import { derivedId } from "../model/derived_id.ts";
import { FatalError } from "../model/errors.ts";
import { producer } from "../model/names.ts";
import { conversationOf, type Task, workKey } from "../model/task.ts";
import { artifactResource } from "../model/visibility.ts";
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
export interface OutputRules extends Omit<DraftRules, "newId" | "label">, Pick<Board, "known"> {
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
    conversation: conversationOf(task),
  };
  const newId = (index: number) => derivedId(first.id, `${key}:${index}`);
  const made = await makeArtifacts(drafts, author, { ...rules, newId, label: "outputs" }).catch(
    (error: unknown) => {
      if (!(error instanceof KhalaError)) throw error;
      throw unpublishable(task.agent, error);
    },
  );
  const named = made.filter((_, i) => drafts[i]!.id !== undefined);
  if (named.length > 0) await refuseReplacing(named, task, rules);
  const delayed = made.filter(({ notBefore }) => notBefore !== undefined);
  if (delayed.length > 0) await keep(delayed, rules);
  return made.filter(({ notBefore }) => notBefore === undefined).map(({ artifact }) => artifact);
}

/** The error of a direct publication: an artifact that the agent has no right to looks like a missing one. */
async function refuseReplacing(named: readonly MadeArtifact[], task: Task, { known }: OutputRules) {
  const [{ org_id: org }] = task.artifacts;
  const existing = await known(
    org,
    named.map(({ artifact }) => artifact.id),
  );
  const inputs = task.artifacts.map(artifactResource);
  const hidden = existing.find(
    (artifact) => !mayOutputReplace(producer(task.agent), inputs, artifactResource(artifact)),
  );
  if (hidden) throw unpublishable(task.agent, notFound("artifact", hidden.id));
}

function unpublishable(agent: string, { message }: KhalaError): InvalidOutputError {
  return new InvalidOutputError(`Agent "${agent}" returned an output that cannot be published: ${message}`);
}

async function keep(delayed: readonly MadeArtifact[], { later }: OutputRules): Promise<void> {
  if (!later)
    throw new InvalidOutputError(
      "An output of this agent cannot have not_before. Publish the artifact through the API instead.",
    );
  await later(delayed);
}

function listed(output: unknown, agent: string): readonly ArtifactDraft[] {
  if (output === undefined || output === null) return [];
  if (Array.isArray(output)) return output;
  if (typeof output === "object") return [output];
  throw new InvalidOutputError(
    `Agent "${agent}" returned a ${typeof output}. Return an artifact such as {type: "Review", payload}, a list of artifacts, or nothing.`,
  );
}

function tooLong(agent: string, maxDepth: number): ChainTooLongError {
  return new ChainTooLongError(
    `The output of agent "${agent}" is more than ${maxDepth} agents away from the first artifact. Check for an endless loop between agents, or raise KHALA_BOARD_DEPTH.`,
  );
}
