import { useKhala } from "@khala/client/react";
import { useMemo } from "react";
import { type Asked, useAsk } from "../parts/asking.ts";
import { type Artifact, type PartitionLag, readAgent, readArtifact, readLag } from "./board_types.ts";
import type { FlowAgent } from "./flow_graph.ts";

const EVERY_MS = 2_000;
/** How many recent artifacts the flow is counted from. */
const WINDOW = 500;

/** What most views of the board are made of, asked again every other second. */
export interface BoardNow {
  readonly agents: Asked<readonly FlowAgent[]>;
  readonly artifacts: Asked<readonly Artifact[]>;
}

/** The agents and the recent artifacts, newest first. Objects stay the same while nothing changed. */
export function useBoardNow(): BoardNow {
  const { board } = useKhala();
  const agents = useAsk("agents", async () => (await board.agents()).agents?.map(readAgent) ?? [], {
    everyMs: EVERY_MS,
  });
  const artifacts = useAsk(
    "artifacts",
    async () => (await board.artifacts({ limit: WINDOW })).artifacts?.map(readArtifact) ?? [],
    { everyMs: EVERY_MS },
  );
  return { agents: useSteady(agents, agentText), artifacts: useSteady(artifacts, artifactText) };
}

/** How far behind each reader is. */
export function useLag(): Asked<readonly PartitionLag[]> {
  const { board } = useKhala();
  return useAsk("lag", async () => (await board.lag()).partitions?.map(readLag) ?? [], { everyMs: EVERY_MS });
}

const agentText = (agent: FlowAgent) => JSON.stringify(agent);
const artifactText = ({ id, version }: Artifact) => `${id}@${version}`;

/** The same list as long as it says the same, so that what is computed from it need not be computed again. */
function useSteady<Item>(
  asked: Asked<readonly Item[]>,
  textOf: (item: Item) => string,
): Asked<readonly Item[]> {
  const { data, error, loading, again } = asked;
  const text = data?.map(textOf).join("\n");
  // biome-ignore lint/correctness/useExhaustiveDependencies: the text says whether the data changed.
  const steady = useMemo(() => data, [text]);
  return { data: steady, error, loading, again };
}
