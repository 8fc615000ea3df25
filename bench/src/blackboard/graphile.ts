import { importPeer } from "../../peers/import_peer.ts";

// What is used of graphile-worker.
interface WorkerUtils {
  migrate(): Promise<void>;
  addJobs(jobs: readonly GraphileJob[]): Promise<unknown>;
  release(): Promise<void>;
}
interface GraphileJob {
  readonly identifier: string;
  readonly payload: unknown;
}
interface Helpers {
  addJob(identifier: string, payload: unknown): Promise<unknown>;
}
interface Runner {
  stop(): Promise<void>;
}
interface Options {
  readonly preset: { readonly worker: object };
  readonly noHandleSignals: true;
  readonly taskList: Readonly<Record<string, (payload: unknown, helpers: Helpers) => unknown>>;
}
interface GraphileWorker {
  readonly Logger: new (factory: () => (level: string, message: string) => void) => object;
  makeWorkerUtils(options: { connectionString: string; logger: object }): Promise<WorkerUtils>;
  run(options: Options): Promise<Runner>;
}

const { Logger, makeWorkerUtils, run } = await importPeer<GraphileWorker>("graphile-worker");

export { makeWorkerUtils, run };

/** Prints what went wrong, and nothing else. */
export const graphileLogger: object = new Logger(() => (level, message) => {
  if (level === "error" || level === "warning") console.error(message);
});

/** The settings of its documentation's page on performance. */
export const PERFORMANCE = {
  concurrentJobs: 24,
  maxPoolSize: 25,
  localQueue: { size: 500 },
  completeJobBatchDelay: 0,
  failJobBatchDelay: 0,
};
