/**
 * What an agent's name looks like: it is part of topics, of addresses and of idempotency keys. No dot, since Kafka
 * refuses topics that differ only in dots and underscores.
 */
export const AGENT_NAME = /^[A-Za-z][A-Za-z0-9_-]{0,63}$/;

/** What the type of an artifact looks like. */
export const ARTIFACT_TYPE = /^[A-Za-z_][A-Za-z0-9_.:-]{0,127}$/;

/** The reader that is not an agent, in the figures of lag. */
export const ROUTER = "router";

/** Who an agent is, as a producer. */
export function producer(agent: string): string {
  return `agent:${agent}`;
}
