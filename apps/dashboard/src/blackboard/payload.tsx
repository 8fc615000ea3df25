import { Json } from "../parts/json.tsx";
import { boardWords } from "../strings/blackboard.ts";
import type { Artifact } from "./board_types.ts";

/** The payload of an artifact, or that it is not for this person. */
export function Payload({ artifact }: { readonly artifact: Artifact }) {
  if (artifact.payload === undefined) return <p className="quiet">{boardWords.artifact.withheld}</p>;
  return <Json value={artifact.payload} label={artifact.type} />;
}
