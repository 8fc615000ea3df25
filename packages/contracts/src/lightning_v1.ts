export * from "./gen/openagents/lightning/v1/control_plane_pb.ts";
