import { graphileLogger as logger, makeWorkerUtils, PERFORMANCE, run } from "../graphile.ts";
import { serveQueue } from "../queue.ts";

const TASK = "finding";

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
