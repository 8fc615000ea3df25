import { testContext } from "@khala/test-support/kit/context";
import { until } from "@khala/test-support/kit/until";
import { PostgresServer } from "@khala/test-support/postgres/server";
import { startConversations } from "@khala/test-support/servers/conversations";
import { expect, test } from "vitest";
import { openDatabase } from "../../packages/server/src/database/database.ts";
import { migrate } from "../../packages/server/src/database/migrate.ts";
import { systemClock } from "../../packages/server/src/kit/clock.ts";

type Server = Awaited<ReturnType<typeof startConversations>>;

/** Runs from question to end. */
async function answer(server: Server, convId: string, ...questions: readonly string[]): Promise<void> {
  for (const question of questions) {
    const { run_id } = await server.chat(convId, question);
    const turn = await server.engine.turn(run_id);
    turn.say(`answer to ${question}`);
    turn.finish();
    expect(await server.settled(convId)).toBe("finished");
  }
}

/** The cursor of a client that has read everything. */
async function cursorOf(server: Server, convId: string): Promise<string> {
  await using client = await server.connect(convId, {});
  const { cursor } = await client.first("hello");
  return cursor!;
}

const anHourBehind = { ...systemClock, now: () => systemClock.now() - 3_600_000 };

test.for([
  ["beyond the end", [], systemClock],
  ["of an entry that another has replaced", ["third", "fourth", "fifth"], systemClock],
  ["of an entry that one with an earlier time has replaced", ["third", "fourth", "fifth"], anHourBehind],
] as const)("after a restore a cursor %s gets resync and a snapshot", async ([, later, clock]) => {
  const convId = "conv-1";
  await using postgres = await PostgresServer.start();
  const { log } = await testContext();
  const database = openDatabase({ url: postgres.url, poolSize: 1, log });
  await migrate(database, log);
  await database.close();
  let cursor: string;
  let restore: () => Promise<void>;
  {
    await using server = await startConversations(postgres.url);
    await answer(server, convId, "first");
    const copy = await postgres.backUp();
    restore = () => postgres.restore(copy);
    // The backup stopped the database for a moment.
    await until("it answers again", () =>
      server.texts(convId).then(
        () => true,
        () => false,
      ),
    );
    await answer(server, convId, "second");
    cursor = await cursorOf(server, convId);
  }
  await restore();
  await using server = await startConversations(postgres.url, { clock });
  await answer(server, convId, ...later);
  // One that has not written them itself reads them from the database.
  await using other = await startConversations(postgres.url, { clock });
  await using client = await other.connect(convId, { after: cursor });
  await client.first("resync");
  await client.first("snapshot");
  expect(client.view.texts).toEqual(await other.texts(convId));
});
