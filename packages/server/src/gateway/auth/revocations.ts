import { KhalaError } from "@khala/contracts";
import type { Viewer } from "../../access/viewer.ts";
import type { Database } from "../../database/database.ts";
import type { Clock } from "../../kit/clock.ts";
import type { Context } from "../../kit/context.ts";
import { runLoop, type Service, Wake } from "../../kit/service.ts";

/** The subject of a revocation: one token, every token of a subject, or every token of an org. Without an org, a token of any org. */
export interface Revocation {
  readonly org?: string;
  readonly subject?: string;
  readonly jti?: string;
}

/** Tokens that were revoked before they expired. */
export interface Revocations {
  isRevoked(viewer: Viewer): boolean;
  /** Revokes what was issued until now; `expiresAt` (ms) is when the last of these tokens expires. */
  revoke(revocation: Revocation, expiresAt: number): Promise<void>;
  /** Calls `listener` after every revocation, so that whatever is open can be checked again; the returned function unsubscribes. */
  onRevoked(listener: () => void): () => void;
}

/** Calls `end` when the viewer's token is revoked, also if that was while it was verified; the returned function unsubscribes. */
export function whenRevoked(
  revocations: Pick<Revocations, "isRevoked" | "onRevoked">,
  viewer: Viewer,
  end: () => void,
): () => void {
  const check = () => {
    if (revocations.isRevoked(viewer)) end();
  };
  const unsubscribe = revocations.onRevoked(check);
  check();
  return unsubscribe;
}

/** The error for a token that was revoked while its request waited. */
export function tokenRevoked(): KhalaError {
  return new KhalaError("token_revoked", "The token was revoked. Sign in again to get a new one.");
}

/** How long a revocation outlives its token: covers the clock skew and a clock that is set back. */
export const REVOCATION_GRACE_MS = 3_600_000;

interface Entry {
  /** Tokens issued until then are revoked, in milliseconds. */
  readonly at: number;
  readonly forgetAt: number;
}

type Key = readonly [org: string, subject: string, jti: string];

const SWEEP_MS = 60_000;

/** Revocations in memory: all that is known in this process. */
class RevocationTable {
  readonly #entries = new Map<string, Entry>();
  readonly #clock: Clock;
  #sweptAt: number;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#sweptAt = clock.now();
  }

  has(viewer: Viewer): boolean {
    if (this.#entries.size === 0) return false;
    const { org, subject, jti } = viewer;
    if (this.#find([org, "", jti]) || this.#find(["", "", jti])) return true;
    return this.#covers(viewer, [org, subject, ""]) || this.#covers(viewer, [org, "", ""]);
  }

  /** Returns whether it was not known before. */
  add(key: Key, { at, forgetAt }: Entry): boolean {
    const id = JSON.stringify(key);
    const known = this.#entries.get(id);
    if (known && known.at >= at && known.forgetAt >= forgetAt) return false;
    if (!known) this.#sweep();
    this.#entries.set(id, {
      at: Math.max(known?.at ?? 0, at),
      forgetAt: Math.max(known?.forgetAt ?? 0, forgetAt),
    });
    return true;
  }

  #find(key: Key): Entry | undefined {
    return this.#entries.get(JSON.stringify(key));
  }

  /** A revoked subject may sign in again: a token that was issued later is not covered. */
  #covers({ issuedAt }: Viewer, key: Key): boolean {
    const entry = this.#find(key);
    return entry !== undefined && (issuedAt === undefined || issuedAt <= entry.at);
  }

  #sweep(): void {
    const now = this.#clock.now();
    if (now - this.#sweptAt < SWEEP_MS) return;
    this.#sweptAt = now;
    for (const [id, { forgetAt }] of this.#entries) if (forgetAt <= now) this.#entries.delete(id);
  }
}

/** Listeners that are all called, even when one of them throws. */
class Listeners {
  readonly #listeners = new Set<{ readonly call: () => void }>();

  add(listener: () => void): () => void {
    const entry = { call: listener };
    this.#listeners.add(entry);
    return () => void this.#listeners.delete(entry);
  }

  call(): void {
    const failures: unknown[] = [];
    for (const listener of [...this.#listeners]) {
      try {
        listener.call();
      } catch (error) {
        failures.push(error);
      }
    }
    if (failures.length > 0) throw new AggregateError(failures, "A listener of revocations failed.");
  }
}

function keyOf({ org = "", subject = "", jti = "" }: Revocation): Key {
  return [org, subject, jti];
}

/** Revocations of this process alone, for tests. */
export function memoryRevocations(clock: Clock): Revocations {
  const table = new RevocationTable(clock);
  const listeners = new Listeners();
  return {
    isRevoked: (viewer) => table.has(viewer),
    async revoke(revocation, expiresAt) {
      table.add(keyOf(revocation), { at: clock.now(), forgetAt: expiresAt + REVOCATION_GRACE_MS });
      listeners.call();
    },
    onRevoked: (listener) => listeners.add(listener),
  };
}

/** Revocations that all servers share: kept in the database, known here in memory. */
export interface StoredRevocations extends Revocations, Service {
  /** Wakeup: another server revoked something. */
  refresh(): void;
}

/** A full list could neither forget one, which would let its token back in, nor refuse those of other orgs. */
const MAX_PER_ORG = 20_000;
const RETRY_MS = 60_000;
/** How long a revocation may take to commit. Those of this time are read again, so that none is missed. */
const COMMIT_MS = 300_000;

/** Opens the shared revocations; those of the installation have no limit. Revocations of other servers arrive with a wake-up, or after `pollMs`. */
export function openStoredRevocations(
  database: Database,
  context: Context,
  pollMs: number,
  onRevoke: () => void,
  maxPerOrg = MAX_PER_ORG,
): StoredRevocations {
  const { clock, quotas } = context;
  const table = new RevocationTable(clock);
  const listeners = new Listeners();
  const wake = new Wake();
  let newest = 0;

  const reject = quotas.add({
    name: "revocations",
    of: "active revocations",
    limit: maxPerOrg,
    async inUse(org) {
      const [row] = await database.query<{ n: number }>({
        name: "revocations_of",
        text: "SELECT count(*)::int AS n FROM runtime.revocations WHERE org_id = $1 AND expires_at > now()",
        values: [org],
      });
      return row!.n;
    },
    async orgs(limit) {
      const rows = await database.query<{ org: string }>({
        name: "revocations_orgs",
        text: "SELECT DISTINCT org_id AS org FROM runtime.revocations WHERE org_id <> '' LIMIT $1",
        values: [limit],
      });
      return rows.map(({ org }) => org);
    },
  });

  async function read(): Promise<void> {
    const rows = await database.query<Revocation & { at: Date; until: Date; changed: Date }>({
      name: "revocations",
      text: `SELECT org_id AS org, subject, jti, revoked_at AS at, expires_at AS until, changed_at AS changed
        FROM runtime.revocations WHERE expires_at > now() AND changed_at >= $1`,
      values: [new Date(newest - COMMIT_MS)],
    });
    for (const { changed } of rows) newest = Math.max(newest, changed.getTime());
    const added = rows.filter((row) =>
      table.add(keyOf(row), { at: row.at.getTime(), forgetAt: row.until.getTime() }),
    );
    if (added.length > 0) listeners.call();
  }

  const loop = runLoop(context, "revocations", {
    wake,
    idleMs: pollMs,
    async step() {
      await read();
      return false;
    },
  });
  return {
    isRevoked: (viewer) => table.has(viewer),
    onRevoked: (listener) => listeners.add(listener),
    async revoke(revocation, expiresAt) {
      const key = keyOf(revocation);
      const [at, forgetAt] = [clock.now(), expiresAt + REVOCATION_GRACE_MS];
      const stored = await database.query({
        name: "revoke",
        text: `WITH expired AS (DELETE FROM runtime.revocations WHERE expires_at < now())
          INSERT INTO runtime.revocations AS r (org_id, subject, jti, revoked_at, expires_at)
          SELECT $1, $2, $3, $4, $5
          WHERE $1 = '' OR ($2 = '' AND $3 = '')
            OR (SELECT count(*) FROM runtime.revocations WHERE org_id = $1 AND expires_at > now()) < $6
            OR EXISTS (SELECT FROM runtime.revocations WHERE org_id = $1 AND subject = $2 AND jti = $3)
          ON CONFLICT (org_id, subject, jti) DO UPDATE
          SET revoked_at = greatest(r.revoked_at, excluded.revoked_at), expires_at = greatest(r.expires_at, excluded.expires_at),
            changed_at = excluded.changed_at
          RETURNING 1`,
        values: [...key, new Date(at), new Date(forgetAt), maxPerOrg],
      });
      if (stored.length === 0)
        throw reject(key[0], RETRY_MS, "Revoke the org itself, or a subject instead of its tokens.");
      onRevoke();
      if (table.add(key, { at, forgetAt })) listeners.call();
    },
    refresh: () => wake.wake(),
    stop: () => loop.stop(),
  };
}
