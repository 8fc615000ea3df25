import { KhalaError } from "@khala/contracts";
import { beforeEach, describe, expect, test } from "vitest";
import { settled } from "../conversation/test_support.ts";
import { handClient } from "../react/test_support.ts";

const TOPIC = "blackboard.correlations";

let hand: ReturnType<typeof handClient>;
beforeEach(() => {
  hand = handClient();
});

/** Lets the plane notify its listeners. */
async function told(work: unknown): Promise<void> {
  await work;
  await settled();
  hand.environment.pass(20);
}

describe("publishing", () => {
  test("sends one draft as it is, and several as a batch", async () => {
    const { board } = hand.client;
    const one = board.publish({ type: "Note", payload: 1 });
    expect(hand.http.last).toMatchObject({
      method: "POST",
      path: "/blackboard/v1/artifacts",
      options: { body: { type: "Note", payload: 1 } },
    });
    hand.http.last.answer({ artifacts: [{ id: "a", status: "published" }] }, 201);
    expect(await one).toEqual({ id: "a", status: "published" });
    const several = board.publish([{ type: "Note", payload: 1 }]);
    expect(hand.http.last.options.body).toEqual({ artifacts: [{ type: "Note", payload: 1 }] });
    hand.http.last.answer({ artifacts: [{ id: "b", status: "duplicate" }] }, 201);
    expect(await several).toEqual([{ id: "b", status: "duplicate" }]);
  });

  test("encodes names in paths", () => {
    void hand.client.board.deadLetters("a/b", { limit: 3 });
    expect(hand.http.last).toMatchObject({
      path: "/blackboard/v1/dead-letters/a%2Fb",
      options: { query: { limit: 3 } },
    });
  });
});

describe("watching a correlation", () => {
  const document = (correlation_id: string, status: string) => ({ correlation_id, status });

  test("finds the correlation among others, and ignores their changes", async () => {
    const watch = hand.client.board.watch("x:1");
    let heard = 0;
    const stop = watch.subscribe(() => heard++);
    await settled();
    await told(
      hand.topics.replace(TOPIC, {
        "correlation:x:1": document("x:1", "running"),
        "correlation:1": document("1", "done"),
      }),
    );
    expect(watch.state()).toMatchObject({
      phase: "live",
      data: { correlation_id: "x:1", status: "running" },
    });
    const [before, times] = [watch.state(), heard];
    await told(hand.topics.set(TOPIC, "correlation:1", 2, document("1", "failed")));
    expect(watch.state()).toBe(before);
    expect(heard).toBe(times);
    await told(hand.topics.set(TOPIC, "correlation:x:1", 2, document("x:1", "done")));
    expect(watch.state().data?.status).toBe("done");
    expect(heard).toBe(times + 1);
    stop();
    hand.environment.pass(5_000);
    expect(hand.topics.sinks(TOPIC)).toEqual([]);
  });

  test("finds an id that its document key encodes", async () => {
    const watch = hand.client.board.watch("hello world");
    const stop = watch.subscribe(() => undefined);
    await settled();
    const key = "correlation:hello@20world";
    await told(hand.topics.replace(TOPIC, { [key]: document("hello world", "running") }));
    expect(watch.state().data?.status).toBe("running");
    stop();
  });

  test("settles once nothing is open, and unsubscribes", async () => {
    const end = hand.client.board.watch("c").settled();
    await settled();
    await told(hand.topics.replace(TOPIC, { "correlation:c": document("c", "running") }));
    await told(hand.topics.set(TOPIC, "correlation:c", 2, document("c", "waiting")));
    await told(hand.topics.set(TOPIC, "correlation:c", 3, document("c", "paused")));
    await told(hand.topics.set(TOPIC, "correlation:c", 4, document("c", "failed")));
    expect(await end).toEqual(document("c", "failed"));
    hand.environment.pass(5_000);
    expect(hand.topics.sinks(TOPIC)).toEqual([]);
  });

  test("rejects a waiting caller when the topic is forbidden, and when its signal aborts", async () => {
    const abort = new AbortController();
    const ends = [hand.client.board.watch("c").settled(), hand.client.board.watch("c").settled(abort)];
    const results = Promise.allSettled(ends);
    await settled();
    abort.abort(new Error("Enough."));
    for (const sink of hand.topics.sinks(TOPIC))
      sink.phase("forbidden", new KhalaError("forbidden_topic", "No."));
    await told(undefined);
    expect(await results).toMatchObject([
      { reason: { code: "forbidden_topic" } },
      { reason: { message: "Enough." } },
    ]);
  });
});
