/** A backend or browser that tests or benchmarks need. */
export interface Service {
  readonly name: string;
  /** The reason this machine cannot run it, or undefined when it can. */
  available(): Promise<string | undefined>;
  start(): Promise<RunningService>;
}

/** A running service, and the environment that programs need to find it. */
export interface RunningService {
  readonly env: Readonly<Record<string, string>>;
  stop(): Promise<void>;
}
