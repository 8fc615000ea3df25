import type { ArtifactListJson, CorrelationStateJson } from "@khala/contracts/blackboard/v1";
import { agent, FatalError } from "@khala/server";
import { eventually } from "@khala/test-support/kit/eventually";
import { testDatabase } from "@khala/test-support/postgres/test_database";
import { startBoard } from "@khala/test-support/servers/board_server";
import { expect, test } from "vitest";

test("an artifact leads to tasks, a retry, a join, a dead letter and its replay, and the correlation is done", async () => {
  const order: string[] = [];
  let isFixed = false;
  const agents = [
    agent("writer", {
      consumes: "Idea",
      retry: { base: 1, cap: 1 },
      run({ artifact, attempt }) {
        order.push(`${artifact.payload} ${attempt}`);
        if (attempt === 1) throw new Error("the model is busy");
        return [
          { type: "Draft", payload: artifact.payload },
          { type: "Review", payload: { good: true } },
        ];
      },
    }),
    agent("editor", {
      consumes: ["Draft", "Review"],
      join: { types: ["Draft", "Review"], within: 60_000 },
      run: ({ artifacts }) => ({ type: "Article", payload: artifacts.map(({ type }) => type) }),
    }),
    agent("publisher", {
      consumes: "Article",
      run() {
        if (!isFixed) throw new FatalError("the site is read-only");
        return { type: "Published", payload: null };
      },
    }),
  ];
  await using database = await testDatabase();
  await using server = await startBoard(database.url, { agents });
  const ofType = async (type: string) => {
    const { body } = await server.get<ArtifactListJson>(`/artifacts?type=${type}&limit=10`);
    return body.artifacts ?? [];
  };

  const idea = { type: "Idea", payload: "rain", correlation_id: "story", partition_key: "weather" };
  const id = await server.publish({ id: "0192c7a0-0000-7000-8000-000000000001", ...idea });
  const again = await server.post("/artifacts", { id, ...idea });
  expect(again.body).toMatchObject({ artifacts: [{ id, status: "duplicate" }] });

  const [letter] = await server.deadLetters("publisher", 1);
  expect(letter).toMatchObject({ attempts: 1, failure: { message: "the site is read-only", kind: "fatal" } });
  expect(order).toEqual(["rain 1", "rain 2"]);
  expect((await ofType("Article")).map(({ payload }) => payload)).toEqual([["Draft", "Review"]]);
  expect((await server.get<CorrelationStateJson>("/correlations/story")).body).toMatchObject({ dead: "1" });

  isFixed = true;
  const replay = `/dead-letters/publisher/${letter!.id}/replay`;
  const [first, second] = await Promise.all([server.post(replay), server.post(replay)]);
  expect([first.status, second.status]).toEqual([202, 202]);
  await eventually("it is published", async () => (await ofType("Published")).length === 1);
  expect(await server.correlation("story", "done")).toMatchObject({ open: "0", dead: "0" });
  expect(await ofType("Published")).toHaveLength(1);
});
