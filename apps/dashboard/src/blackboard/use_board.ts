import { useKhala } from "@khala/client/react";
import { type FetchState, useFetch } from "../data/fetch.ts";
import { type Agent, type Artifact, readAgents, readArtifact } from "./board_types.ts";

const EVERY_MS = 2_000;
/** How many recent artifacts the flow is counted from. */
const WINDOW = 500;

/** What most views of the board need. */
export interface BoardState {
  readonly agents: FetchState<readonly Agent[]>;
  /** The recent ones, newest first. */
  readonly artifacts: FetchState<readonly Artifact[]>;
}

/** Polls the agents and the recent artifacts. */
export function useBoardState(): BoardState {
  const { board } = useKhala();
  const agents = useFetch(["agents"], async () => readAgents(await board.agents()), EVERY_MS);
  const artifacts = useFetch(
    ["artifacts"],
    async () => (await board.artifacts({ limit: WINDOW })).artifacts?.map(readArtifact) ?? [],
    EVERY_MS,
  );
  return { agents, artifacts };
}
