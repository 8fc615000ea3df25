/** An engine that tests or benchmarks run on. */
export interface Service {
  readonly name: string;
  /** Why it cannot be had on this machine, or undefined when it can. */
  available(): Promise<string | undefined>;
  start(): Promise<RunningService>;
}

/** An engine that runs, and what a program needs to find it. */
export interface RunningService {
  readonly env: Readonly<Record<string, string>>;
  stop(): Promise<void>;
}
