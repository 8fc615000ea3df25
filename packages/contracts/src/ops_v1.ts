export * from "./gen/openagents/ops/v1/ops_pb.ts";
export * from "./gen/openagents/ops/v1/sockets_pb.ts";
export * from "./gen/openagents/ops/v1/sync_pb.ts";

/** A JSON message whose numbers are numbers: the mapping of proto3 also has texts for those that are none, which are never sent. */
export type Plain<T> = T extends "NaN" | "Infinity" | "-Infinity"
  ? never
  : T extends readonly (infer Item)[]
    ? Plain<Item>[]
    : T extends object
      ? { [Field in keyof T]: Plain<T[Field]> }
      : T;
