import type { Database } from "../../database/database.ts";
import type { Context } from "../../kit/context.ts";
import { runLoop, type Service, Wake } from "../../kit/service.ts";
import { renewBundlesStatements } from "./bundles.ts";
import type { Claimed, Hold } from "./claimed.ts";
import { RENEW } from "./claims.ts";

const AT_ONCE = 5_000;

/**
 * Renews the leases of all claims of this process, with one statement, and tells of those that are gone. Claims that came
 * together are kept together: a table of all of them would be made anew all the time, and each old one would keep what is
 * done from the collector.
 */
export class Leases implements Service {
  readonly #holds = new Set<Hold>();
  readonly #context: Context;
  readonly #loop: Service;
  /** The newest. What comes in the same moment joins it. */
  #last: Hold | undefined;

  constructor(database: Database, context: Context, holder: string, leaseMs: number) {
    this.#context = context;
    this.#loop = runLoop(context, "board leases", {
      wake: new Wake(),
      idleMs: leaseMs / 4,
      step: async () => {
        const now = context.clock.now();
        const old = this.#olderThan(now - leaseMs / 4);
        if (old.length === 0) return false;
        const holds = old.map(({ hold }) => hold);
        const rows = await database.transaction([
          // First: what leaves its bundle meanwhile is found in a row of its own.
          ...renewBundlesStatements(holder, old, leaseMs),
          {
            name: "board_renew",
            text: RENEW,
            values: [holder, old.map(({ seq }) => seq), old.map(({ task }) => task.attempt), leaseMs],
          },
        ]);
        const mine = new Set(rows.flat().map(({ seq, attempt }) => `${seq} ${attempt}`));
        for (const [i, claim] of old.entries()) {
          const { hold } = claim;
          // It may have been settled meanwhile.
          if (!hold || hold !== holds[i]) continue;
          if (mine.has(`${claim.seq} ${claim.task.attempt}`)) {
            this.letGo(claim);
            this.#join(claim, hold.lost, now);
          } else hold.lost(claim);
        }
        return old.length === AT_ONCE;
      },
    });
  }

  hold(claims: readonly Claimed[], lost: (claim: Claimed) => void): void {
    const now = this.#context.clock.now();
    for (const claim of claims) this.#join(claim, lost, now);
  }

  letGo(claim: Claimed): void {
    const { hold } = claim;
    if (!hold) return;
    claim.hold = undefined;
    hold.claims[claim.place!] = undefined;
    if (--hold.open === 0) this.#holds.delete(hold);
  }

  stop(): Promise<void> {
    return this.#loop.stop();
  }

  #join(claim: Claimed, lost: Hold["lost"], now: number): void {
    let hold = this.#last;
    if (!hold || hold.open === 0 || hold.renewedAt !== now || hold.lost !== lost) {
      hold = { claims: [], open: 0, lost, renewedAt: now };
      this.#holds.add(hold);
      this.#last = hold;
    }
    claim.hold = hold;
    claim.place = hold.claims.push(claim) - 1;
    hold.open++;
  }

  #olderThan(time: number): Claimed[] {
    const old: Claimed[] = [];
    for (const { renewedAt, claims } of this.#holds) {
      if (renewedAt > time) continue;
      for (const claim of claims) {
        if (claim) old.push(claim);
        if (old.length === AT_ONCE) return old;
      }
    }
    return old;
  }
}
