export * from "./gen/openagents/blackboard/v1/artifact_pb.ts";
export * from "./gen/openagents/blackboard/v1/events_pb.ts";
export * from "./gen/openagents/blackboard/v1/http_pb.ts";
