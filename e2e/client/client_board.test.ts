import { randomUUID } from "node:crypto";
import { createClient, type KhalaClient } from "@khala/client";
import { agent, FatalError } from "@khala/server";
import { eventually } from "@khala/test-support/kit/eventually";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { BACKENDS, backendSettings } from "@khala/test-support/servers/backends";
import { BOARD_SCOPES, type BoardServer, startBoard } from "@khala/test-support/servers/board_server";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

const agents = [
  agent("writer", {
    consumes: "Topic",
    run: ({ artifact }) => ({ type: "Draft", payload: artifact.payload }),
  }),
  agent("reviewer", {
    consumes: "Draft",
    run({ artifact }) {
      const { words } = artifact.payload as { words?: number };
      if (!words) throw new FatalError("A draft without words cannot be reviewed.");
      return { type: "Article", payload: { words } };
    },
  }),
  agent("signer", { consumes: "Contract", approval: true, run: () => ({ type: "Signed", payload: 1 }) }),
  agent("lazy", { consumes: "Chore", run: () => ({ type: "Chore.done", payload: 1 }) }),
];

describe.each(BACKENDS)("on %s", (backend) => {
  let database: TestDatabase;
  let server: BoardServer;
  let khala: KhalaClient;
  beforeAll(async () => {
    database = await testDatabase();
    server = await startBoard(database.url, { agents }, await backendSettings(backend));
    const scopes = [...BOARD_SCOPES, "ops", "platform", "blackboard.correlations", "blackboard.agents"];
    khala = createClient({ url: server.url, token: () => server.token({ scopes }) });
  });
  afterAll(async () => {
    await khala.close();
    await server[Symbol.asyncDispose]();
    await database[Symbol.asyncDispose]();
  });

  const soon = () => ({ signal: AbortSignal.timeout(30_000) });

  test("publishes an artifact, and watches its correlation until it is done", async () => {
    const correlation_id = randomUUID();
    const watch = khala.board.watch(correlation_id);
    const seen: (string | undefined)[] = [];
    const stop = watch.subscribe(() => seen.push(watch.state().data?.status));
    const { id, status } = await khala.board.publish({
      type: "Topic",
      payload: { words: 3 },
      correlation_id,
    });
    expect(status).toBe("published");
    expect(await watch.settled(soon())).toMatchObject({ correlation_id, status: "done", artifacts: "3" });
    expect(seen.at(-1)).toBe("done");
    expect(watch.state()).toBe(watch.state());
    stop();
    expect(await khala.board.artifact(id!)).toMatchObject({ type: "Topic", correlation_id });
    const { artifacts = [] } = await khala.board.artifacts({ correlation_id });
    expect(artifacts.map(({ type }) => type).sort()).toEqual(["Article", "Draft", "Topic"]);
    expect(await khala.board.correlation(correlation_id)).toMatchObject({ status: "done" });
  });

  test("shows a failed task, replays it fixed, and its correlation is done", async () => {
    const correlation_id = randomUUID();
    await khala.board.publish({ type: "Topic", payload: { words: 0 }, correlation_id });
    const watch = khala.board.watch(correlation_id);
    const stop = watch.subscribe(() => {});
    expect(await watch.settled(soon())).toMatchObject({ status: "failed", dead: "1" });
    const { dead_letters = [] } = await khala.board.deadLetters("reviewer", { correlation_id });
    expect(dead_letters).toMatchObject([
      {
        agent: "reviewer",
        failure: { class: "FatalError", message: "A draft without words cannot be reviewed." },
      },
    ]);
    const { id } = dead_letters[0]!;
    expect(await khala.board.deadLetter("reviewer", id!)).toMatchObject({ id });
    const replayed = await khala.board.replay("reviewer", id!, { payload: { words: 5 } });
    expect(replayed.status).toBe("replayed");
    await eventually("the end", () => watch.state().data?.status === "done");
    stop();
    const { artifacts = [] } = await khala.board.artifacts({ type: "Article", correlation_id });
    expect(artifacts).toMatchObject([{ payload: { words: 5 } }]);
    expect(await khala.board.replay("reviewer", id!)).toEqual({ ...replayed, status: "already_replayed" });
  });

  test("publishes several together or none, and the refusal names the wrong one", async () => {
    const drafts = [
      { type: "Note", payload: 1 },
      { type: "Note", payload: 2 },
    ];
    expect(await khala.board.publish(drafts)).toMatchObject([
      { status: "published" },
      { status: "published" },
    ]);
    await expect(khala.board.publish([...drafts, { type: "!", payload: 3 }])).rejects.toMatchObject({
      code: "invalid_request",
      details: { items: [{ index: 2 }] },
    });
  });

  test("cancels and resumes a correlation", async () => {
    const correlation_id = randomUUID();
    await khala.board.pause("lazy");
    const { agents: paused = [] } = await khala.board.agents();
    expect(paused).toContainEqual(expect.objectContaining({ name: "lazy", state: "paused" }));
    await khala.board.publish({ type: "Chore", payload: null, correlation_id });
    await khala.board.cancel(correlation_id);
    await khala.board.resume("lazy");
    const watch = khala.board.watch(correlation_id);
    expect(await watch.settled(soon())).toMatchObject({ status: "cancelled" });
    await eventually("the dead letter", async () => {
      const { dead_letters = [] } = await khala.board.deadLetters("lazy", { correlation_id });
      return dead_letters.length === 1;
    });
    expect(await khala.board.resumeCorrelation(correlation_id)).toMatchObject({ replayed: 1 });
    await eventually(
      "the end",
      async () => (await khala.board.correlation(correlation_id)).status === "done",
    );
  });

  test("a held task continues when it is approved", async () => {
    const correlation_id = randomUUID();
    await khala.board.publish({ type: "Contract", payload: {}, correlation_id });
    const { id } = await eventually("the question", async () => {
      const { approvals = [] } = await khala.board.approvals();
      return approvals.find(({ task }) => task?.artifacts?.[0]?.correlation_id === correlation_id);
    });
    await khala.board.decide(id!, { approved: true, reason: "Read it." });
    expect(await khala.board.watch(correlation_id).settled(soon())).toMatchObject({ status: "done" });
  });

  test("replays several dead letters at once", async () => {
    const correlation_id = randomUUID();
    await khala.board.publish([
      { type: "Draft", payload: {}, correlation_id },
      { type: "Draft", payload: {}, correlation_id },
    ]);
    expect(await khala.board.watch(correlation_id).settled(soon())).toMatchObject({ status: "failed" });
    await eventually("both", async () => (await khala.board.correlation(correlation_id)).dead === "2");
    expect(await khala.board.replayAll("reviewer", { correlation_id })).toMatchObject({ replayed: 2 });
    expect((await khala.board.lag()).partitions).toContainEqual(
      expect.objectContaining({ reader: "reviewer" }),
    );
  });

  test("a watch without the topic's scope is refused", async () => {
    const client = createClient({ url: server.url, token: () => server.token() });
    await expect(client.board.watch("x").settled(soon())).rejects.toMatchObject({ code: "forbidden_topic" });
    await client.close();
  });

  test("shows an operator the state of the board, once and live", async () => {
    const { ops } = khala;
    const name = backend.toLowerCase();
    expect(await ops.about()).toMatchObject({ dev: true, backends: { blackboard: name } });
    const { blackboard } = await ops.overview();
    expect(blackboard).toMatchObject({ backend: name, agents: agents.length });
    const stop = ops.live.subscribe(() => {});
    const overview = await eventually("an overview", () => ops.live.state().overview);
    expect(overview.blackboard).toMatchObject({ backend: name, agents: agents.length });
    const { sockets = [] } = await ops.sockets();
    expect(sockets.flatMap(({ channels = [] }) => channels.map(({ topic }) => topic))).toContain("ops:v1");
    stop();
  });
});
