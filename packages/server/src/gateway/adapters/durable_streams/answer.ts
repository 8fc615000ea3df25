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
  return new KhalaError("not_found", "The stream does not exist, or you may not see it. Create it with PUT.");
}

/** The error for a stream that was deleted while it had forks. */
export function streamGone(): KhalaError {
  return new KhalaError(
    "stream_gone",
    "The stream was deleted. Its path is available again after all its forks are deleted.",
  );
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
      throw new KhalaError("stream_closed", "The stream is closed: you cannot append to it.");
    case "other_type":
      throw new KhalaError(
        "stream_conflict",
        `The stream has the content type ${outcome.contentType}. Send that type.`,
        {
          field: "content-type",
        },
      );
    case "stale_epoch":
      reply.header("Producer-Epoch", String(outcome.epoch));
      throw new KhalaError(
        "stale_producer",
        `A newer instance of this producer has written with epoch ${outcome.epoch}. Stop this instance, or use a higher epoch.`,
        { field: "producer-epoch" },
      );
    case "epoch_not_at_zero":
      throw new KhalaError("invalid_request", "A new Producer-Epoch must start with Producer-Seq 0.", {
        field: "producer-seq",
      });
    case "gap":
      reply
        .header("Producer-Expected-Seq", String(outcome.expected))
        .header("Producer-Received-Seq", String(outcome.received));
      throw new KhalaError(
        "sequence_conflict",
        `Producer-Seq must be ${outcome.expected}, not ${outcome.received}. Send the requests in between first.`,
        { field: "producer-seq" },
      );
    case "seq_not_above":
      throw new KhalaError("sequence_conflict", "Stream-Seq must be greater than the last accepted one.", {
        field: "stream-seq",
        current_seq: outcome.last,
      });
  }
}
