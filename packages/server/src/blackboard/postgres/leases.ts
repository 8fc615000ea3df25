import type { Database } from "../../database/database.ts";
import type { Context } from "../../kit/context.ts";
import { runLoop, type Service, Wake } from "../../kit/service.ts";
import { BY_INDEX, type Claim, renewStatement } from "./statements.ts";

/** Called when a claim is another process's. */
type OnLost = (claim: Claim) => void;

interface Lease {
  readonly claim: Claim;
  readonly onLost: OnLost;
  readonly renewedAt: number;
}

const AT_ONCE = 5_000;

/** Renews the leases of all claims of this process, with one statement, and reports lost ones. */
export class Leases implements Service {
  readonly #context: Context;
  readonly #leases = new Map<bigint, Lease>();
  readonly #loop: Service;

  constructor(database: Database, context: Context, holder: string, leaseMs: number) {
    this.#context = context;
    this.#loop = runLoop(context, "board leases", {
      wake: new Wake(),
      idleMs: leaseMs / 4,
      step: async () => {
        const now = context.clock.now();
        const old = this.#renewedBefore(now - leaseMs / 4);
        if (old.length === 0) return false;
        const claims = old.map(({ claim }) => claim);
        const [, rows] = await database.transaction([BY_INDEX, renewStatement(holder, claims, leaseMs)]);
        const held = new Set(rows!.map(({ seq }) => seq as bigint));
        for (const lease of old) {
          const { claim, onLost } = lease;
          // It may have been settled since.
          if (this.#leases.get(claim.seq) !== lease) continue;
          if (held.has(claim.seq)) this.#leases.set(claim.seq, { ...lease, renewedAt: now });
          else onLost(claim);
        }
        return old.length === AT_ONCE;
      },
    });
  }

  /** Keeps the leases of claims until they are released. */
  hold(claims: readonly Claim[], onLost: OnLost): void {
    const renewedAt = this.#context.clock.now();
    for (const claim of claims) {
      // Its lease had ended, and this process was the one to claim it again.
      const before = this.#leases.get(claim.seq);
      before?.onLost(before.claim);
      this.#leases.set(claim.seq, { claim, onLost, renewedAt });
    }
  }

  /** Lets a lease end. */
  drop(claim: Claim): void {
    if (this.#leases.get(claim.seq)?.claim === claim) this.#leases.delete(claim.seq);
  }

  stop(): Promise<void> {
    return this.#loop.stop();
  }

  #renewedBefore(time: number): Lease[] {
    const old: Lease[] = [];
    for (const lease of this.#leases.values()) {
      if (lease.renewedAt <= time) old.push(lease);
      if (old.length === AT_ONCE) break;
    }
    return old;
  }
}
