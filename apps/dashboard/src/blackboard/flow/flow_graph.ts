import type { Agent } from "../board_types.ts";

/** What the graph needs to know of an artifact. */
export interface FlowArtifact {
  readonly type: string;
  readonly produced_by: string;
}

export interface AgentNode {
  readonly kind: "agent";
  readonly id: string;
  readonly name: string;
  /** Absent for a publisher that is not an agent of this server. */
  readonly agent?: Agent;
}

export interface TypeNode {
  readonly kind: "type";
  readonly id: string;
  readonly name: string;
}

/** All users and programs that publish. */
export interface PublisherNode {
  readonly kind: "publisher";
  readonly id: string;
  readonly name: "";
}

export type FlowNode = AgentNode | TypeNode | PublisherNode;

export interface FlowEdge {
  readonly id: string;
  readonly from: string;
  readonly to: string;
  readonly kind: "consumes" | "produces";
  /** Tasks that the agent has done, or artifacts that it published, of all servers since installation; undefined where none are counted. */
  readonly done: number | undefined;
}

export interface FlowGraph {
  readonly nodes: readonly FlowNode[];
  readonly edges: readonly FlowEdge[];
}

const PUBLISHER = "publisher";
const AGENT = "agent:";

/**
 * Who produces what for whom: agents with what they consume and publish, counted by the server. The recent artifacts add
 * users and agents of other servers, without counts, since they are a part. Sorted by name, so that the same board always has the same layout.
 */
export function flowGraph(agents: readonly Agent[], artifacts: readonly FlowArtifact[]): FlowGraph {
  const produced = new Map<string, { readonly from: string; readonly type: string }>();
  for (const { type, produced_by } of artifacts) {
    const from = produced_by.startsWith(AGENT) ? produced_by : PUBLISHER;
    produced.set(`${from}>${type}`, { from, type });
  }
  for (const { name, published } of agents)
    for (const type of Object.keys(published))
      produced.set(`${AGENT}${name}>${type}`, { from: AGENT + name, type });
  const publishes = [...produced.values()];

  const known = new Map(agents.map((agent) => [agent.name, agent]));
  const names = new Set(known.keys());
  for (const { from } of publishes) if (from !== PUBLISHER) names.add(from.slice(AGENT.length));
  const types = new Set([
    ...publishes.map(({ type }) => type),
    ...agents.flatMap(({ consumes }) => consumes),
  ]);

  const nodes: FlowNode[] = [
    ...[...types].sort().map((name): TypeNode => ({ kind: "type", id: typeId(name), name })),
    ...[...names].sort().map((name): AgentNode => {
      const agent = known.get(name);
      return { kind: "agent", id: AGENT + name, name, ...(agent && { agent }) };
    }),
  ];
  if (publishes.some(({ from }) => from === PUBLISHER))
    nodes.unshift({ kind: "publisher", id: PUBLISHER, name: "" });

  const consuming = agents.flatMap(({ name, consumes, done }) =>
    consumes.map((type): FlowEdge => {
      // The total is that of the agent, which may consume several types.
      const ofType = consumes.length === 1 ? done : undefined;
      return { id: `${type}>${name}`, from: typeId(type), to: AGENT + name, kind: "consumes", done: ofType };
    }),
  );
  const producing = [...produced].map(([id, { from, type }]): FlowEdge => {
    const count = known.get(from.slice(AGENT.length))?.published[type];
    return {
      id,
      from,
      to: typeId(type),
      kind: "produces",
      done: count === undefined ? undefined : Number(count),
    };
  });
  return { nodes, edges: [...consuming, ...producing].sort((a, b) => (a.id < b.id ? -1 : 1)) };
}

/** Changes only when an agent or a type is added or removed, not with the numbers: then a new layout is needed. */
export function flowShape({ nodes, edges }: FlowGraph): string {
  return [...nodes.map(({ id }) => id), "", ...edges.map(({ id }) => id)].join("\n");
}

const typeId = (name: string) => `type:${name}`;
