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
  /** Recent artifacts of the type. */
  readonly count: number;
}

/** All users and programs that publish. */
export interface PublisherNode {
  readonly kind: "publisher";
  readonly id: string;
  readonly name: "";
  readonly count: number;
}

export type FlowNode = AgentNode | TypeNode | PublisherNode;

export interface FlowEdge {
  readonly id: string;
  readonly from: string;
  readonly to: string;
  readonly kind: "consumes" | "produces";
  /** Recent artifacts that went this way. */
  readonly count: number;
}

export interface FlowGraph {
  readonly nodes: readonly FlowNode[];
  readonly edges: readonly FlowEdge[];
}

const PUBLISHER = "publisher";
const AGENT = "agent:";

/**
 * Who produces what for whom, from what agents consume and who published the recent artifacts. Sorted by name, so that the
 * same board always has the same layout.
 */
export function flowGraph(agents: readonly Agent[], artifacts: readonly FlowArtifact[]): FlowGraph {
  const counts = new Map<string, number>();
  const produced = new Map<string, { from: string; type: string; count: number }>();
  let published = 0;
  for (const { type, produced_by } of artifacts) {
    counts.set(type, (counts.get(type) ?? 0) + 1);
    const from = produced_by.startsWith(AGENT) ? produced_by : PUBLISHER;
    if (from === PUBLISHER) published++;
    const key = `${from}>${type}`;
    const known = produced.get(key);
    if (known) known.count++;
    else produced.set(key, { from, type, count: 1 });
  }

  const known = new Map(agents.map((agent) => [agent.name, agent]));
  const names = new Set(known.keys());
  for (const { from } of produced.values()) if (from !== PUBLISHER) names.add(from.slice(AGENT.length));
  const types = new Set([...counts.keys(), ...agents.flatMap(({ consumes }) => consumes)]);

  const nodes: FlowNode[] = [
    ...[...types].sort().map((name): TypeNode => {
      return { kind: "type", id: typeId(name), name, count: counts.get(name) ?? 0 };
    }),
    ...[...names].sort().map((name): AgentNode => {
      const agent = known.get(name);
      return { kind: "agent", id: AGENT + name, name, ...(agent && { agent }) };
    }),
  ];
  if (published > 0) nodes.unshift({ kind: "publisher", id: PUBLISHER, name: "", count: published });

  const consuming = agents.flatMap(({ name, consumes }) =>
    consumes.map((type): FlowEdge => {
      const count = counts.get(type) ?? 0;
      return { id: `${type}>${name}`, from: typeId(type), to: AGENT + name, kind: "consumes", count };
    }),
  );
  const producing = [...produced].map(([id, { from, type, count }]): FlowEdge => {
    return { id, from, to: typeId(type), kind: "produces", count };
  });
  return { nodes, edges: [...consuming, ...producing].sort((a, b) => (a.id < b.id ? -1 : 1)) };
}

/** Changes only when an agent or a type is added or removed, not with the numbers: then a new layout is needed. */
export function flowShape({ nodes, edges }: FlowGraph): string {
  return [...nodes.map(({ id }) => id), "", ...edges.map(({ id }) => id)].join("\n");
}

const typeId = (name: string) => `type:${name}`;
