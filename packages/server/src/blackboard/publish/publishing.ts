import { KhalaError } from "@khala/contracts";
import type { PublishedJson } from "@khala/contracts/blackboard/v1";
import type { StandardSchemaV1 } from "@standard-schema/spec";
import { may, notFound } from "../../access/access.ts";
import type { Context } from "../../kit/context.ts";
import type { RateQuota } from "../../kit/quota.ts";
import type { Board } from "../board.ts";
import type { Schedule } from "../model/agent.ts";
import type { Artifact, ArtifactDraft } from "../model/artifact.ts";
import { artifactResource } from "../model/visibility.ts";
import type { BoardSpans } from "../observe/spans.ts";
import type { Caller } from "../plane.ts";
import { type Author, type DraftRules, makeArtifacts } from "./drafts.ts";
import type { ScheduledArtifacts } from "./schedule.ts";
import type { Throttle } from "./throttle.ts";

/** Publishes the drafts of people, programs and schedules. */
export interface Publishing {
  publish(caller: Caller, drafts: readonly ArtifactDraft[]): Promise<PublishedJson[]>;
  /** The artifact of a schedule's firing. */
  fromSchedule(schedule: Schedule, id: string): Promise<Artifact>;
  /** The payload as its type's schema returns it, or an error that names the invalid field. */
  checkPayload(type: string, payload: unknown): Promise<unknown>;
}

export interface PublishingParts {
  readonly board: Pick<Board, "publish" | "known" | "requireReachable">;
  readonly schedule: Pick<ScheduledArtifacts, "add">;
  readonly throttle: Throttle;
  /** Artifacts that an org publishes per second. */
  readonly quota: RateQuota;
  readonly spans: BoardSpans;
  readonly schemas: Readonly<Record<string, StandardSchemaV1>>;
}

/** Opens publishing. */
export function openPublishing(context: Context, parts: PublishingParts): Publishing {
  const { board, schedule, throttle, quota, spans, schemas } = parts;
  const rules: DraftRules = { schemas, clock: context.clock, newId: () => context.newId() };

  async function put(caller: Caller, author: Author, drafts: readonly ArtifactDraft[]) {
    const made = await makeArtifacts(drafts, author, rules);
    const artifacts = made.map(({ artifact }) => artifact);
    await refuseReplacing(
      caller,
      artifacts.filter((_, i) => drafts[i]!.id !== undefined),
    );
    if (made.every(({ notBefore }) => notBefore === undefined))
      return { artifacts, statuses: await board.publish(artifacts) };
    // A call with delayed and immediate artifacts writes all of them to the outbox, so that it is atomic.
    const now = context.clock.now();
    const added = await schedule.add(made.map(({ artifact, notBefore = now }) => ({ artifact, notBefore })));
    const statuses = made.map(({ notBefore }, i) =>
      notBefore === undefined && added[i] === "scheduled" ? "published" : added[i]!,
    );
    return { artifacts, statuses };
  }

  /** A new version hides the one before it: an artifact the caller may not read looks like a missing one. */
  async function refuseReplacing(caller: Caller, artifacts: readonly Artifact[]): Promise<void> {
    if (artifacts.length === 0) return;
    const known = await board.known(
      caller.org,
      artifacts.map(({ id }) => id),
    );
    const hidden = known.find((artifact) => !may(caller, "artifact.replace", artifactResource(artifact)));
    if (hidden) throw notFound("artifact", hidden.id);
  }

  return {
    async publish(caller, drafts) {
      const { org, subject, trace, conversation } = caller;
      if (drafts.length === 0)
        throw new KhalaError("invalid_request", "Send at least one artifact.", { field: "artifacts" });
      board.requireReachable?.();
      for (const _ of drafts) quota.take(org);
      // Drafts are as they were sent: one may be null, which makeArtifacts refuses.
      await throttle.enter(org, new Set(drafts.flatMap((draft) => draft?.type ?? [])));
      const { artifacts, statuses } = await spans.publish(
        { org, trace },
        (inner) =>
          put(caller, { org, producedBy: `user:${subject}`, trace: inner, depth: 0, conversation }, drafts),
        (result) => result.artifacts,
      );
      return artifacts.map(({ id }, i) => ({ id, status: statuses[i]! }));
    },

    async fromSchedule({ name, org, artifact }, id) {
      const author = { org, producedBy: `schedule:${name}`, depth: 0 };
      const [made] = await makeArtifacts([{ ...artifact, id }], author, rules);
      return made!.artifact;
    },

    async checkPayload(type, payload) {
      const draft = { type, payload } as ArtifactDraft;
      const author = { org: "", producedBy: "user:", depth: 0 };
      const [made] = await makeArtifacts([draft], author, { ...rules, label: "payload" });
      return made!.artifact.payload;
    },
  };
}
