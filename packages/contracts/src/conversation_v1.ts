export * from "./gen/openagents/conversation/v1/conversation_pb.ts";
export * from "./gen/openagents/conversation/v1/events_pb.ts";
