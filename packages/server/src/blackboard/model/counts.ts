/** The tasks of an agent. For a long queue it may be an estimate, and some seconds old. */
export interface AgentCounts {
  readonly agent: string;
  /** Ready, blocked by their key, or waiting for a retry. */
  readonly waiting: number;
  readonly running: number;
  /** Dead letters that were not replayed. */
  readonly dead: number;
}

/** An agent, as far as it works for an org. */
export interface AgentOfOrg {
  readonly agent: string;
  readonly org: string;
}

/** A correlation of an org. Another org may use the same name. */
export interface CorrelationName {
  readonly org: string;
  readonly name: string;
}

/** The progress of a correlation. */
export interface CorrelationCounts {
  readonly correlationId: string;
  readonly org: string;
  readonly artifacts: number;
  readonly open: number;
  /** The open tasks that wait for a retry. */
  readonly retrying: number;
  readonly done: number;
  readonly dead: number;
}
