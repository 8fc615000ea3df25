export * from "./gen/openagents/sync/v1/http_pb.ts";
export * from "./gen/openagents/sync/v1/sync_pb.ts";
