/**
 * The pattern of an agent's name, which is part of topics, URLs and idempotency keys. No dot, because Kafka
 * refuses topics that differ only in dots and underscores.
 */
export const AGENT_NAME = /^[A-Za-z][A-Za-z0-9_-]{0,63}$/;

/** The pattern of an artifact's type. */
export const ARTIFACT_TYPE = /^[A-Za-z_][A-Za-z0-9_.:-]{0,127}$/;

/** The name of the router among the readers in lag figures. */
export const ROUTER = "router";

/** An agent as the producer of an artifact. */
export function producer(agent: string): string {
  return `agent:${agent}`;
}
