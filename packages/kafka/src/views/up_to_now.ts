import { type Context, sleep } from "@khala/server/blackboard";
import type { ClusterOffsets } from "../client/cluster_offsets.ts";
import type { Position } from "../topics/log_reader.ts";
import type { LogTail } from "../topics/log_tail.ts";
import { type Bounds, endsOf, stableBounds } from "../topics/offsets.ts";

const FRESH_MS = 10_000;
const OPEN_MS = 500;
const LOOK_AGAIN_MS = 10;
/** A record may have a marker behind it, which has an offset too. */
const OFFSETS_PER_RECORD = 2;

/** What was read. */
export interface UpToNow {
  readonly bounds: readonly Bounds[];
  /** Whether something that was written before the call is open still, and may have been committed. */
  readonly behind: boolean;
}

/**
 * Reads what was committed before this call. A commit is answered before its markers are written: what seems open may
 * be committed, and is waited for, though not as long as a transaction may hang.
 */
export async function readUpToNow(
  { clock }: Pick<Context, "clock">,
  offsets: Pick<ClusterOffsets, "list">,
  tail: LogTail,
  topic: string,
  openMs = OPEN_MS,
): Promise<UpToNow> {
  const written = await endsOf(offsets, topic, "high");
  const deadline = clock.now() + openMs;
  for (;;) {
    const bounds = await stableBounds(offsets, topic);
    await tail.reached(
      bounds.map(({ partition, end }) => ({ topic, partition, offset: end })),
      FRESH_MS,
    );
    const behind = written.some(({ partition, offset }) => tail.next(topic, partition) < offset);
    if (!behind || clock.now() >= deadline) return { bounds, behind };
    await sleep(clock, LOOK_AGAIN_MS);
  }
}

/** Where to begin so that the last so many records of a partition are read, if it has them. */
export function startOf(topic: string, { partition, low, end }: Bounds, back: number): Position {
  return { topic, partition, offset: Math.max(low, end - back * OFFSETS_PER_RECORD) };
}
