import type { Database } from "../../database/database.ts";
import type { Context } from "../../kit/context.ts";
import { runLoop, type Service, Wake } from "../../kit/service.ts";
import { renewBundlesStatements } from "./bundles.ts";
import type { Claimed } from "./claimed.ts";
import { RENEW } from "./claims.ts";

/** What claims that came together share, until some of them are renewed. */
interface Hold {
  readonly lost: (claim: Claimed) => void;
  readonly renewedAt: number;
}

const AT_ONCE = 5_000;

/** Renews the leases of all claims of this process, with one statement, and tells of those that are gone. */
export class Leases implements Service {
  readonly #held = new Map<Claimed, Hold>();
  readonly #context: Context;
  readonly #loop: Service;

  constructor(database: Database, context: Context, holder: string, leaseMs: number) {
    this.#context = context;
    this.#loop = runLoop(context, "board leases", {
      wake: new Wake(),
      idleMs: leaseMs / 4,
      step: async () => {
        const now = context.clock.now();
        const old: [Claimed, Hold][] = [];
        for (const held of this.#held) {
          if (held[1].renewedAt > now - leaseMs / 4) continue;
          old.push(held);
          if (old.length === AT_ONCE) break;
        }
        if (old.length === 0) return false;
        const claims = old.map(([claim]) => claim);
        const rows = await database.transaction([
          // First: what leaves its bundle meanwhile is found in a row of its own.
          ...renewBundlesStatements(holder, claims, leaseMs),
          {
            name: "board_renew",
            text: RENEW,
            values: [holder, claims.map(({ seq }) => seq), claims.map(({ task }) => task.attempt), leaseMs],
          },
        ]);
        const mine = new Set(rows.flat().map(({ seq, attempt }) => `${seq} ${attempt}`));
        for (const [claim, hold] of old) {
          // It may have been settled meanwhile.
          if (this.#held.get(claim) !== hold) continue;
          if (mine.has(`${claim.seq} ${claim.task.attempt}`))
            this.#held.set(claim, { ...hold, renewedAt: now });
          else hold.lost(claim);
        }
        return old.length === AT_ONCE;
      },
    });
  }

  hold(claims: readonly Claimed[], lost: (claim: Claimed) => void): void {
    const hold = { lost, renewedAt: this.#context.clock.now() };
    for (const claim of claims) this.#held.set(claim, hold);
  }

  letGo(claim: Claimed): void {
    this.#held.delete(claim);
  }

  stop(): Promise<void> {
    return this.#loop.stop();
  }
}
