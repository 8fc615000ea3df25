import type { Clock } from "../../../kit/clock.ts";
import type { PinnedKey } from "./algorithms.ts";
import { readJwks } from "./jwks.ts";
import type { JwksLoader } from "./jwks_loaders.ts";

/** A key set that follows its source. */
export interface JwksCache {
  /** The key with this kid; an unknown kid may be a new one, so "reload" reads the source again, within limits. */
  find(kid: string, onUnknown: "reload" | "give_up"): Promise<PinnedKey | undefined>;
  /** Loads the set unless it is there. */
  load(): Promise<void>;
  /** Why the source cannot be read now. */
  problem(): string | undefined;
}

/** How a key set follows its source. */
export interface JwksCacheOptions {
  readonly clock: Clock;
  readonly report: (problem: string) => void;
  /** The age at which the source is asked again. */
  readonly maxAgeMs: number;
  /** Unknown kids reload the set three times, then once per interval: strangers must not make the server flood the source. */
  readonly cooldownMs: number;
}

const RELOAD_BURST = 3;
const RETRY_MS = 1_000;

/** A cache over a source. When the source fails, the keys that were read before stay in use. */
export function createJwksCache(loader: JwksLoader, options: JwksCacheOptions): JwksCache {
  const { clock, report, maxAgeMs, cooldownMs } = options;
  let keys: ReadonlyMap<string, PinnedKey> | undefined;
  let failure: string | undefined;
  let skippedBefore = "";
  let loadedAt = 0;
  let triedAt = 0;
  let running: Promise<void> | undefined;
  const mayReload = budget(clock, RELOAD_BURST, cooldownMs);

  // A clock that was set back must not freeze the set: time that runs backwards counts as long enough.
  const passed = (since: number, ms: number) => clock.now() < since || clock.now() - since >= ms;

  const attempt = async (force: boolean) => {
    triedAt = clock.now();
    try {
      // After a failure the source is read even if it seems unchanged.
      const json = await loader.load(force || failure !== undefined);
      if (json !== undefined) use(json);
      loadedAt = clock.now();
      failure = undefined;
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error);
      const problem = `The key set ${loader.name} cannot be read: ${reason}`;
      // It is tried every second: an outage is logged once, not every time.
      if (problem !== failure) report(problem);
      failure = problem;
    }
  };
  const use = (json: unknown) => {
    const read = readJwks(json);
    const skipped = read.skipped.join("; ");
    if (skipped !== skippedBefore && skipped !== "")
      report(`The key set ${loader.name} has unusable keys: ${skipped}`);
    skippedBefore = skipped;
    keys = read.keys;
  };
  const reload = (force: boolean) => {
    running ??= attempt(force).finally(() => {
      running = undefined;
    });
    return running;
  };
  const followSource = async () => {
    if (keys && !passed(loadedAt, maxAgeMs)) return;
    if (failure !== undefined && !running && !passed(triedAt, RETRY_MS)) return;
    const reloading = reload(false);
    // While the source is known to fail, a request that the old keys can serve does not wait for it.
    if (!keys || failure === undefined) await reloading;
  };

  return {
    async find(kid, onUnknown) {
      await followSource();
      const key = keys?.get(kid);
      if (key || onUnknown === "give_up" || !keys) return key;
      if (!running && !mayReload()) return undefined;
      await reload(true);
      return keys.get(kid);
    },
    load: followSource,
    problem: () => failure,
  };
}

function budget(clock: Clock, burst: number, refillMs: number): () => boolean {
  let left = burst;
  let at = clock.now();
  return () => {
    const now = clock.now();
    left = Math.min(burst, left + Math.max(0, now - at) / refillMs);
    at = now;
    if (left < 1) return false;
    left -= 1;
    return true;
  };
}
