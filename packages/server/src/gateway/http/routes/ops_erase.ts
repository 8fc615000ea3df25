import { KhalaError } from "@khala/contracts";
import { type EraseRequest, EraseRequestSchema, type EraseResponseJson } from "@khala/contracts/ops/v1";
import { may, notFound } from "../../../access/access.ts";
import type { Viewer } from "../../../access/viewer.ts";
import { eraseArtifacts, eraseDeadLetters, forgetPublisher } from "../../../blackboard/postgres/erasure.ts";
import type { ConversationPlane } from "../../../conversations/plane.ts";
import type { Database } from "../../../database/database.ts";
import { eraseStreams } from "../../../durable_streams/erasure.ts";
import type { SyncPlane } from "../../../sync/plane.ts";
import type { Http } from "../http.ts";
import { readMessage } from "../read_request.ts";

export interface EraseDeps {
  readonly database: Database;
  readonly sync: Pick<SyncPlane, "erase" | "eraseRuns">;
  readonly conversations: Pick<ConversationPlane, "erase">;
}

/** The stages, in order. Events go last: the ends of erased conversations and correlations are events too. */
const STAGES = [
  "conversations",
  "durable_streams",
  "artifacts",
  "dead_letters",
  "publishers",
  "events",
] as const;
type Stage = (typeof STAGES)[number];

interface Step {
  readonly org: string;
  readonly subject: string;
  readonly dryRun: boolean;
}

/** The result of a step, and where its stage continues; undefined at its end. */
interface Done {
  readonly counts: Readonly<Record<string, number>>;
  readonly next: string | bigint | undefined;
  readonly reproject?: readonly string[];
}

/** `POST /ops/v1/erase`: erases what a subject left in an org, in bounded steps. */
export function opsEraseRoute(http: Http, { database, sync, conversations }: EraseDeps): void {
  const stages: Record<Stage, (step: Step, after: string) => Promise<Done>> = {
    async conversations(step, after) {
      const { org, subject } = step;
      const found = { events: 0, documents: 0 };
      const reproject: string[] = [];
      const eraseRuns = async (runIds: readonly string[]) => {
        const { events, documents, shared } = await sync.eraseRuns(org, subject, runIds);
        found.events += events;
        found.documents += documents;
        reproject.push(...shared);
      };
      const { counts, next } = await conversations.erase({ ...step, after, eraseRuns });
      return { counts: { ...counts, ...found }, next, reproject: [...new Set(reproject)] };
    },
    async durable_streams(step) {
      const { count, more } = await eraseStreams(database, step);
      return { counts: { durable_streams: count }, next: more ? "" : undefined };
    },
    async artifacts(step, after) {
      const { artifacts, dead_letters, next } = await eraseArtifacts(database, {
        ...step,
        after: position(after),
      });
      return { counts: { artifacts, dead_letters }, next };
    },
    async dead_letters(step) {
      const { dead_letters, more } = await eraseDeadLetters(database, step);
      return { counts: { dead_letters }, next: more ? "" : undefined };
    },
    async publishers(step, after) {
      return { counts: {}, next: await forgetPublisher(database, { ...step, after: position(after) }) };
    },
    async events(step, after) {
      const { events, documents, shared, next } = await sync.erase({ ...step, after: position(after) });
      return { counts: { events, documents }, next, reproject: shared };
    },
  };

  http.route("subject.erase", "POST", "/ops/v1/erase", async (viewer, request, reply, audited) => {
    const sent = readMessage(EraseRequestSchema, request.body);
    const step: Step = { ...targetOf(viewer, sent), dryRun: sent.dryRun ?? true };
    const [stage, after] = readPlace(sent.next);
    audited.org = step.org;
    audited.resource = JSON.stringify({ subject: step.subject, dry_run: step.dryRun, stage });
    const { counts, next, reproject = [] } = await stages[stage](step, after);
    const following = STAGES[STAGES.indexOf(stage) + 1];
    const place = next !== undefined ? `${stage}:${next}` : following && `${following}:`;
    const { busy = 0, ...erased } = counts;
    const answer: EraseResponseJson = {
      erased: Object.entries(erased).map(([what, count]) => ({ what, count })),
      dry_run: step.dryRun,
      ...(place !== undefined && { next: place }),
      reproject: [...reproject],
      busy,
    };
    return reply.send(answer);
  });
}

/** The org and the subject. Without an org, it is the caller's own. */
function targetOf(viewer: Viewer, { subject, orgId }: EraseRequest): { org: string; subject: string } {
  const org = orgId ?? viewer.org;
  if (!/^[^\0]{1,256}$/u.test(subject))
    throw new KhalaError("invalid_request", "subject must be the `sub` of the tokens, 1 to 256 characters.", {
      field: "subject",
    });
  if (!org)
    throw new KhalaError("invalid_request", "org_id is missing. Send the org of the subject.", {
      field: "org_id",
    });
  if (!may(viewer, "subject.erase", { org })) throw notFound("org", org);
  return { org, subject };
}

function readPlace(next = "conversations:"): [Stage, string] {
  const [, name, after] = /^([a-z_]+):(\P{Cc}{0,1024})$/u.exec(next) ?? [];
  const stage = STAGES.find((known) => known === name);
  if (stage && after !== undefined) return [stage, after];
  throw badPlace();
}

function position(after: string): bigint {
  if (!/^\d{0,18}$/.test(after)) throw badPlace();
  return BigInt(after);
}

function badPlace(): KhalaError {
  return new KhalaError("invalid_request", "next must be the unchanged `next` of the previous answer.", {
    field: "next",
  });
}
