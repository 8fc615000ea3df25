import { Logger, makeWorkerUtils, run } from "graphile-worker";
import { serveQueue } from "../queue.ts";

const TASK = "finding";
const logger = new Logger(() => (level, message) => {
  if (level === "error" || level === "warning") console.error(message);
});
/** The settings of its documentation's page on performance. */
const PERFORMANCE = {
  concurrentJobs: 24,
  maxPoolSize: 25,
  localQueue: { size: 500 },
  completeJobBatchDelay: 0,
  failJobBatchDelay: 0,
};

serveQueue<string>({
  async publisher(connectionString) {
    const utils = await makeWorkerUtils({ connectionString, logger });
    await utils.migrate();
    return {
      async put(payloads) {
        await utils.addJobs(payloads.map((payload) => ({ identifier: TASK, payload })));
      },
      async close() {
        await utils.release();
      },
    };
  },
  async worker(connectionString, settled) {
    const runner = await run({
      preset: { worker: { connectionString, logger, ...PERFORMANCE } },
      noHandleSignals: true,
      taskList: { [TASK]: () => {} },
    });
    runner.events.on("job:complete", () => settled(1));
    return { close: () => runner.stop() };
  },
});
