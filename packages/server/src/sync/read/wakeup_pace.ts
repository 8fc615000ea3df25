/** Commits with up to this many updates are announced at once; larger ones come from many writers, and follow each other. */
const FEW_UPDATES = 4;
/** How long after the last wakeup such a commit announces itself, and how long a wakeup waits for the next commit to do so. */
const CROWD_WITHIN_MS = 5;
const CROWD_WAIT_MS = 8;
/** A commit that announces itself keeps others from doing so until it is on the disk: one part in this many at most. */
const PARTS = 4;

/** How long ago the last wakeup must be for a commit to announce itself, given the duration of the last commit; undefined for the usual pace. */
export function tellsItselfAfterMs(updates: number, tookMs: number): number | undefined {
  return updates > FEW_UPDATES ? Math.max(CROWD_WITHIN_MS, PARTS * tookMs) : undefined;
}

/** How long a separate wakeup of a commit may wait after the last one; undefined for the usual pace. */
export function mayWaitMs(updates: number): number | undefined {
  return updates > FEW_UPDATES ? CROWD_WAIT_MS : undefined;
}
