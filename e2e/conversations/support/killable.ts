import type { Log } from "../../../packages/server/src/conversations/log/log.ts";
import type { Database } from "../../../packages/server/src/database/database.ts";
import { type Clock, systemClock } from "../../../packages/server/src/kit/clock.ts";

/**
 * What a server of this process has of the world, which can be cut off as by `kill -9`: its transactions are rolled back,
 * nothing that it sends is answered, and none of its timers fires.
 */
export class Killable {
  #killed = false;

  readonly clock: Clock = {
    now: () => systemClock.now(),
    after: (ms, fn) => systemClock.after(ms, () => void (this.#killed || fn())),
  };

  kill(): void {
    this.#killed = true;
  }

  get killed(): boolean {
    return this.#killed;
  }

  /** Waits for ever once the server is killed. */
  async alive(): Promise<void> {
    if (this.#killed) await never();
  }

  readonly database = (database: Database): Database => {
    const interactive: Database["interactive"] = (work) =>
      database.interactive(async (tx) => {
        const value = await work({
          query: (statement) => {
            this.#rollBack();
            return tx.query(statement);
          },
        });
        this.#rollBack();
        return value;
      });
    return this.#wrap({ ...database, interactive });
  };

  readonly log = (log: Log): Log => this.#wrap(log);

  #rollBack(): void {
    if (this.#killed) throw new Error("The server was killed.");
  }

  #wrap<T extends object>(target: T): T {
    return new Proxy(target, {
      get: (of, name) => {
        const value = Reflect.get(of, name);
        if (typeof value !== "function") return value;
        return (...args: unknown[]) => (this.#killed ? never() : value.apply(of, args));
      },
    });
  }
}

function never(): Promise<never> {
  return new Promise(() => {});
}
