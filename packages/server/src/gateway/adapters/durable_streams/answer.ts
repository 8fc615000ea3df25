import { KhalaError } from "@khala/contracts";
import type { FastifyReply } from "fastify";
import { formatOffset } from "../../../durable_streams/offset.ts";
import type { AppendOutcome, Claim, Tail } from "../../../durable_streams/stream.ts";

/** The offset of a stream's end. */
export function tailOffset({ id, tail, writtenAt }: Tail): string {
  return formatOffset({ stream: id, position: tail, writtenAt });
}

/** The error for a stream that does not exist, or belongs to another org. */
export function noStream(): KhalaError {
  return new KhalaError("not_found", "There is no such stream, or it is not yours. Create it with PUT.");
}

/** The error for a stream that was deleted while it had forks. */
export function streamGone(): KhalaError {
  return new KhalaError("stream_gone", "The stream was deleted. Its path is free again when its forks are.");
}

/** Answers an append as the protocol defines. A repetition succeeds with the last accepted sequence. */
export function answerAppend(
  reply: FastifyReply,
  outcome: AppendOutcome,
  { claim, hasData }: { claim: Claim | undefined; hasData: boolean },
): FastifyReply {
  switch (outcome.kind) {
    case "appended":
    case "duplicate": {
      reply.header("Stream-Next-Offset", tailOffset(outcome));
      if (outcome.closed) reply.header("Stream-Closed", "true");
      if (claim) {
        const seq = outcome.kind === "duplicate" ? outcome.seq : claim.seq;
        reply.header("Producer-Epoch", String(claim.epoch)).header("Producer-Seq", String(seq));
      }
      return reply.code(outcome.kind === "appended" && claim && hasData ? 200 : 204).send();
    }
    case "missing":
      throw noStream();
    case "gone":
      throw streamGone();
    case "closed":
      reply.header("Stream-Closed", "true").header("Stream-Next-Offset", tailOffset(outcome));
      throw new KhalaError("stream_closed", "The stream is closed: nothing can be added to it.");
    case "other_type":
      throw new KhalaError("stream_conflict", `The stream holds ${outcome.contentType}. Send that.`, {
        field: "content-type",
      });
    case "stale_epoch":
      reply.header("Producer-Epoch", String(outcome.epoch));
      throw new KhalaError(
        "stale_producer",
        `A newer instance of this producer has written, with the epoch ${outcome.epoch}. Stop, or begin a higher epoch.`,
        { field: "producer-epoch" },
      );
    case "epoch_not_at_zero":
      throw new KhalaError("invalid_request", "A new Producer-Epoch begins with Producer-Seq 0.", {
        field: "producer-seq",
      });
    case "gap":
      reply
        .header("Producer-Expected-Seq", String(outcome.expected))
        .header("Producer-Received-Seq", String(outcome.received));
      throw new KhalaError(
        "sequence_conflict",
        `Producer-Seq ${outcome.expected} is next, not ${outcome.received}. Send the requests between them first.`,
        { field: "producer-seq" },
      );
    case "seq_not_above":
      throw new KhalaError(
        "sequence_conflict",
        "Stream-Seq must come after the last one that was accepted.",
        {
          field: "stream-seq",
          current_seq: outcome.last,
        },
      );
  }
}
