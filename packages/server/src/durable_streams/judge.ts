import { type Append, type AppendOutcome, type Claim, mediaType, type Stream } from "./stream.ts";

/** The last claim of a producer that was accepted. */
export type Accepted = Pick<Claim, "epoch" | "seq">;

/** A stream under its lock, changed by the appends that are judged one after the other. */
export interface LockedStream extends Stream {
  tail: bigint;
  closed: boolean;
  seq: string | undefined;
  closedBy: Claim | undefined;
}

/**
 * Decides about one append. Only "appended" changes anything; the caller stores it.
 * A producer's repetition is recognised before `Stream-Seq`, which it repeats as well.
 */
export function judge(stream: LockedStream, last: Accepted | undefined, append: Append): AppendOutcome {
  const { id, tail } = stream;
  const { claim } = append;
  if (stream.closed) {
    if (claim && sameClaim(claim, stream.closedBy))
      return { kind: "duplicate", id, tail, closed: true, seq: claim.seq };
    // To close what is closed is no error, unless a producer believes that it was the one who did.
    if (append.data.length === 0 && !claim) return { kind: "appended", id, tail, closed: true };
    return { kind: "closed", id, tail };
  }
  if (append.contentType !== undefined && mediaType(append.contentType) !== mediaType(stream.contentType))
    return { kind: "other_type", contentType: stream.contentType };
  const refusal = claim && refuse(stream, last, claim);
  if (refusal) return refusal;
  if (append.seq !== undefined && stream.seq !== undefined && !above(append.seq, stream.seq))
    return { kind: "seq_not_above", last: stream.seq };
  return { kind: "appended", id, tail: tail + BigInt(append.data.length), closed: append.close };
}

/** Why a producer's claim is not the next one, or undefined when it is. */
function refuse(stream: LockedStream, last: Accepted | undefined, claim: Claim): AppendOutcome | undefined {
  const { epoch, seq } = claim;
  if (last && epoch < last.epoch) return { kind: "stale_epoch", epoch: last.epoch };
  if (last && epoch > last.epoch) return seq === 0n ? undefined : { kind: "epoch_not_at_zero" };
  if (last && seq <= last.seq)
    return { kind: "duplicate", id: stream.id, tail: stream.tail, closed: stream.closed, seq: last.seq };
  const expected = last ? last.seq + 1n : 0n;
  return seq === expected ? undefined : { kind: "gap", expected, received: seq };
}

function sameClaim(a: Claim, b: Claim | undefined): boolean {
  return b !== undefined && a.producer === b.producer && a.epoch === b.epoch && a.seq === b.seq;
}

/** Whether `a` comes after `b` in the order of their bytes. */
function above(a: string, b: string): boolean {
  return Buffer.compare(Buffer.from(a), Buffer.from(b)) > 0;
}
