import { KhalaError } from "@khala/contracts";
import type { AuditEntryJson } from "@khala/contracts/ops/v1";
import type { Database } from "../database/database.ts";
import type { Context } from "../kit/context.ts";
import { runLoop, type Service, Wake } from "../kit/service.ts";
import { orgOf } from "./access.ts";
import type { Action } from "./actions.ts";
import type { Caller } from "./viewer.ts";

/** The caller, the action, the resource and the address. */
export interface AuditedAction {
  readonly viewer: Caller;
  readonly action: Action;
  resource: string;
  readonly address: string;
  /** The org that it concerns, if it is not the caller's own. */
  org?: string;
}

export interface AuditQuery {
  readonly action?: string | undefined;
  readonly subject?: string | undefined;
  /** The id of the last entry of the page before. */
  readonly before?: string | undefined;
  readonly limit: number;
}

/** The audit log: who did what, with which outcome. An entry gets its outcome once, and is not changed otherwise. */
export interface Audit {
  /**
   * Records the work, does it, and records its outcome: an entry of a server that died meanwhile has none. The work may say
   * more precisely what it concerns. What cannot be recorded is not done.
   */
  around<Result>(what: AuditedAction, work: (what: AuditedAction) => Promise<Result>): Promise<Result>;
  /** The entries that the caller may see, newest first. */
  read(caller: Caller, query: AuditQuery): Promise<AuditEntryJson[]>;
}

const SWEEP_MS = 3_600_000;
const MAX_TEXT = 600;

/** The text, of which a database stores no NUL. */
function storable(text: string): string {
  return text.slice(0, MAX_TEXT).replaceAll("\0", "");
}

export interface AuditOptions {
  readonly keepMs: number;
  /** Every entry is also a line of the server's log, for a collector. */
  readonly lines: boolean;
}

/** Opens the audit log in the database. */
export function openAudit(
  database: Database,
  context: Context,
  { keepMs, lines }: AuditOptions,
): Audit & Service {
  const { log } = context;
  const sweep = runLoop(context, "audit retention", {
    wake: new Wake(),
    idleMs: SWEEP_MS,
    async step() {
      await database.query({
        name: "audit_retention",
        text: "DELETE FROM runtime.audit_log WHERE at < now() - $1 * interval '1 ms'",
        values: [keepMs],
      });
      return false;
    },
  });

  /** Writes an entry without an outcome. */
  async function start({ viewer, action, resource, address }: AuditedAction): Promise<bigint> {
    const { org, subject } = viewer;
    const [row] = await database.query<{ id: bigint }>({
      name: "audit_start",
      text: `INSERT INTO runtime.audit_log (org_id, subject, action, resource, address) VALUES ($1, $2, $3, $4, $5)
        RETURNING id`,
      values: [org, subject, action, resource, address],
    });
    return row!.id;
  }

  /** Writes the outcome, and the resource that the work has named. */
  async function end(id: bigint, { viewer, org = viewer.org, resource }: AuditedAction, outcome: string) {
    await database.query({
      name: "audit_end",
      text: `UPDATE runtime.audit_log SET outcome = $5, org_id = $3, resource = $4
        WHERE id = $1 AND org_id = $2 AND outcome IS NULL`,
      // A refused request may name what the database cannot store.
      values: [id, viewer.org, storable(org), storable(resource), outcome],
    });
  }

  function writeLine(id: bigint, what: AuditedAction, outcome: string): void {
    if (!lines) return;
    const { viewer, org = viewer.org, action, resource, address } = what;
    const { subject } = viewer;
    const entry = { id: String(id), org_id: org, subject, action, resource, address, outcome };
    log.info({ audit: entry }, "audit");
  }

  /** The work is done, and the answer may be on its way: operators see a failure to record the outcome. */
  async function tryToEnd(id: bigint, what: AuditedAction, outcome: string): Promise<void> {
    writeLine(id, what, outcome);
    await end(id, what, outcome).catch((err) =>
      log.error({ err, action: what.action }, "the outcome of an audit entry was not written"),
    );
  }

  return {
    stop: () => sweep.stop(),

    async around(what, work) {
      const id = await start(what);
      writeLine(id, what, "started");
      let result: Awaited<ReturnType<typeof work>>;
      try {
        result = await work(what);
      } catch (error) {
        const outcome = error instanceof KhalaError ? error.code : "internal";
        await tryToEnd(id, what, outcome);
        throw error;
      }
      await tryToEnd(id, what, "ok");
      return result;
    },

    read: (caller, { action, subject, before, limit }) =>
      database.query<AuditEntryJson>({
        name: "audit_read",
        text: `SELECT id::text, to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS at, org_id, subject,
            action, resource, address, coalesce(outcome, 'unknown') AS outcome
          FROM runtime.audit_log a
          WHERE ($1::text IS NULL OR org_id = $1) AND ($2::text IS NULL OR action = $2)
            AND ($3::text IS NULL OR subject = $3) AND id < coalesce($4::bigint, 9223372036854775807)
          -- The column: the id that is returned is a text, of which 9 is more than 10.
          ORDER BY a.id DESC LIMIT $5`,
        values: [orgOf(caller, "audit.read") ?? null, action ?? null, subject ?? null, before ?? null, limit],
      }),
  };
}
