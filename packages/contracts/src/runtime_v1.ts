export * from "./gen/openagents/runtime/v1/documents_pb.ts";
export * from "./gen/openagents/runtime/v1/events_pb.ts";
