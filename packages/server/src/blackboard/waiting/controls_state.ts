/** The row of a pause or cancellation. Rows of agents have no org. */
export interface ControlRow {
  readonly kind: "pause" | "cancel";
  readonly org: string;
  readonly name: string;
  readonly active: boolean;
  readonly resuming: boolean;
  readonly since: bigint;
  readonly changed: bigint;
  readonly at: Date;
}

/** The pause of a correlation. */
export interface CorrelationPause {
  readonly org: string;
  readonly name: string;
  /** Pauses are numbered in ascending order. */
  readonly since: bigint;
  /** The held tasks are being sent back in order; new tasks queue behind them. */
  readonly resuming: boolean;
}

/** The pauses and cancellations that a server knows, and their listeners. */
export class ControlState {
  readonly pausedAgents = new Set<string>();
  /** By agent: tasks created until this time are cancelled. */
  readonly cancelledAgents = new Map<string, number>();
  readonly onCancel = new Set<(org: string, correlationId: string) => void>();
  readonly onCancelAgent = new Set<(agent: string) => void>();
  readonly onPause = new Set<(agent: string) => void>();
  readonly onPauseCorrelation = new Set<(org: string, correlationId: string) => void>();
  readonly #pauses = new Map<string, CorrelationPause>();
  /** By time, oldest first. */
  readonly #cancelled = new Map<string, number>();
  readonly #gates = new Map<string, Set<() => void>>();

  apply(row: ControlRow): void {
    if (row.kind === "pause") {
      if (row.org === "") this.#pauseAgent(row);
      else this.#pause(row);
    } else if (row.org === "") this.#cancelAgent(row);
    else this.#cancel(row);
  }

  correlationPause(org: string, correlationId: string | undefined): CorrelationPause | undefined {
    // Called for every task, so it must be cheap.
    if (this.#pauses.size === 0 || correlationId === undefined) return undefined;
    return this.#pauses.get(keyOf(org, correlationId));
  }

  cancelled(org: string, correlationId: string | undefined): boolean {
    if (this.#cancelled.size === 0 || correlationId === undefined) return false;
    return this.#cancelled.has(keyOf(org, correlationId));
  }

  resuming(): CorrelationPause[] {
    return [...this.#pauses.values()].filter(({ resuming }) => resuming);
  }

  /** Resolves once the agent is not paused, or the signal aborts. */
  gate(agent: string, signal: AbortSignal): Promise<void> {
    if (!this.pausedAgents.has(agent) || signal.aborted) return Promise.resolve();
    return new Promise((resolve) => {
      const waiting = this.#gates.get(agent) ?? new Set();
      this.#gates.set(agent, waiting);
      const open = () => {
        waiting.delete(open);
        if (waiting.size === 0) this.#gates.delete(agent);
        signal.removeEventListener("abort", open);
        resolve();
      };
      waiting.add(open);
      signal.addEventListener("abort", open, { once: true });
    });
  }

  /** Removes cancellations older than this time. */
  forget(until: number): void {
    for (const [key, at] of this.#cancelled) {
      if (at > until) break;
      this.#cancelled.delete(key);
    }
    for (const [agent, at] of this.cancelledAgents) if (at <= until) this.cancelledAgents.delete(agent);
  }

  #pauseAgent({ name, active }: ControlRow): void {
    if (this.pausedAgents.has(name) === active) return;
    if (active) this.pausedAgents.add(name);
    else this.pausedAgents.delete(name);
    if (!active) for (const open of this.#gates.get(name) ?? []) open();
    for (const listener of [...this.onPause]) listener(name);
  }

  #pause({ org, name, active, since, resuming }: ControlRow): void {
    const key = keyOf(org, name);
    if (active) this.#pauses.set(key, { org, name, since, resuming });
    else this.#pauses.delete(key);
    for (const listener of [...this.onPauseCorrelation]) listener(org, name);
  }

  #cancelAgent({ name, active, at }: ControlRow): void {
    if (!active) return void this.cancelledAgents.delete(name);
    this.cancelledAgents.set(name, at.getTime());
    for (const listener of [...this.onCancelAgent]) listener(name);
  }

  #cancel({ org, name, active, at }: ControlRow): void {
    const key = keyOf(org, name);
    const before = this.#cancelled.delete(key);
    if (!active) return;
    this.#cancelled.set(key, at.getTime());
    if (!before) for (const listener of [...this.onCancel]) listener(org, name);
  }
}

const keyOf = (org: string, correlationId: string) => `${org}\0${correlationId}`;
