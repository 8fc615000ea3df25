import { setTimeout } from "node:timers/promises";
import { graphileLogger as logger, makeWorkerUtils, PERFORMANCE, run } from "../graphile.ts";
import { AT_A_TIME, AWAITS_MS, FAN, type HopsWhere, type Item, itemOf, type Shape } from "../hops.ts";
import { openJoins } from "../joins.ts";
import { serveQueue } from "../queue.ts";

type Add = (task: string, item: Item) => Promise<unknown>;
type Handle = (item: Item, add: Add) => unknown;

serveQueue<HopsWhere>({
  async publisher({ url: connectionString }) {
    const utils = await makeWorkerUtils({ connectionString, logger });
    await utils.migrate();
    return {
      async put(payloads) {
        await utils.addJobs(payloads.map((each) => ({ identifier: "first", payload: itemOf(each) })));
      },
      close: () => utils.release(),
    };
  },

  async worker({ url: connectionString, shape }, { settled, ran }) {
    const joins = await openJoins(connectionString);
    const utils = await makeWorkerUtils({ connectionString, logger });
    const ends: Handle = () => settled(1);
    const handedTo =
      (task: string): Handle =>
      (item, add) =>
        add(task, item);
    const waits =
      (handle: Handle): Handle =>
      async (item, add) => {
        await setTimeout(AWAITS_MS);
        await handle(item, add);
      };
    const handles: Readonly<Record<Shape, readonly Handle[]>> = {
      single: [ends],
      pipeline: [handedTo("second"), handedTo("third"), ends],
      waiting: [waits(handedTo("second")), waits(handedTo("third")), waits(ends)],
      fanout: [
        (item) => utils.addJobs(Array.from({ length: FAN }, () => ({ identifier: "second", payload: item }))),
        async (item, add) => {
          const [whole] = await joins.count([item.correlation], FAN);
          if (whole) await add("third", item);
        },
        ends,
      ],
    };
    const names = ["first", "second", "third"];
    const taskList = Object.fromEntries(
      handles[shape].map((handle, i) => [
        names[i]!,
        async (item: unknown, { addJob }: { addJob: Add }) => {
          ran(1);
          await handle(item as Item, addJob);
        },
      ]),
    );
    const concurrency = shape === "waiting" ? { concurrentJobs: AT_A_TIME * names.length } : {};
    const runner = await run({
      preset: { worker: { connectionString, logger, ...PERFORMANCE, ...concurrency } },
      noHandleSignals: true,
      taskList,
    });
    return {
      async close() {
        await runner.stop();
        await utils.release();
        await joins.close();
      },
    };
  },
});
