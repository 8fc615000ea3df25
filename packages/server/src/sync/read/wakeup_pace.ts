/** Up to so many updates in a commit the others hear of it at once; more come in a crowd, whose commits follow each other. */
const FEW_UPDATES = 4;
/** How long after the last wakeup a crowd's commit tells of itself, and how long one waits for the next to do so. */
const CROWD_WITHIN_MS = 5;
const CROWD_WAIT_MS = 8;
/** Who tells of a commit as part of it keeps others from doing so until it is on the disk: for one part in so many at most. */
const PARTS = 4;

/** How long ago the last wakeup must be for a commit to tell of itself, if the last commit took so long; undefined for the usual. */
export function tellsItselfAfterMs(updates: number, tookMs: number): number | undefined {
  return updates > FEW_UPDATES ? Math.max(CROWD_WITHIN_MS, PARTS * tookMs) : undefined;
}

/** How long a wakeup of a commit's own may wait after the last one; undefined for the usual. */
export function mayWaitMs(updates: number): number | undefined {
  return updates > FEW_UPDATES ? CROWD_WAIT_MS : undefined;
}
