import {
  type DescMessage,
  fromBinary,
  fromJson,
  type JsonValue,
  type MessageShape,
} from "@bufbuild/protobuf";
import { KhalaError } from "@khala/contracts";

/** Reads a message that a client sent, as JSON or as protobuf; throws invalid_request with the field that is wrong. */
export function readMessage<S extends DescMessage>(schema: S, sent: unknown): MessageShape<S> {
  try {
    return sent instanceof Uint8Array
      ? fromBinary(schema, sent)
      : fromJson(schema, (sent ?? {}) as JsonValue);
  } catch (cause) {
    // The library's message may repeat the value, which may be long.
    const reason = (cause as Error).message.slice(0, 300);
    const field = /field [\w.]+\.(\w+)/.exec(reason)?.[1] ?? /key "(\w+)"/.exec(reason)?.[1];
    const message = `This is not a valid ${schema.name}: ${reason}.`;
    throw new KhalaError("invalid_request", message, field ? { field } : {}, { cause });
  }
}
