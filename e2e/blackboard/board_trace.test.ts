import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { json } from "node:stream/consumers";
import { agent, FatalError, type Khala } from "@khala/server";
import type { SyncFrame } from "@khala/test-support/clients/clients";
import { answerOf, openPhoenix, PHOENIX_CLIENTS } from "@khala/test-support/clients/phoenix";
import { eventually } from "@khala/test-support/kit/eventually";
import { BACKENDS } from "@khala/test-support/servers/backends";
import {
  ADA,
  arrived,
  boardServers,
  buried,
  listed,
  publish,
  stands,
} from "@khala/test-support/servers/board_servers";
import { describe, expect, test } from "vitest";

type Value = { stringValue?: string; intValue?: number | string };

interface Span {
  readonly name: string;
  readonly traceId: string;
  readonly spanId: string;
  readonly parentSpanId?: string;
  readonly attributes: readonly { readonly key: string; readonly value: Value }[];
}

interface Export {
  readonly resourceSpans: readonly { readonly scopeSpans: readonly { readonly spans: readonly Span[] }[] }[];
}

/** A program that takes traces, as operators have one. */
async function collector() {
  const spans: Span[] = [];
  const server = createServer(async (request, response) => {
    const { resourceSpans } = (await json(request)) as Export;
    spans.push(...resourceSpans.flatMap(({ scopeSpans }) => scopeSpans.flatMap((scope) => scope.spans)));
    response.setHeader("content-type", "application/json").end("{}");
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const dispose = async () => {
    server.closeAllConnections();
    server.close();
  };
  return { spans, url, [Symbol.asyncDispose]: dispose };
}

const attributesOf = ({ attributes }: Span): Record<string, string | number> =>
  Object.fromEntries(attributes.map(({ key, value }) => [key, value.stringValue ?? Number(value.intValue)]));

const TRACE = "4bf92f3577b34da6a3ce929d0e0e4736";

/** Publishes a topic over HTTP, as a part of a trace that began elsewhere. */
async function publishInTrace(khala: Khala): Promise<{ readonly id: string }> {
  const scopes = ["blackboard:write"];
  const { token } = await khala.auth.issuer!.mint({ sub: "ada", org_id: "acme", scopes });
  const response = await fetch(`${khala.url}/blackboard/v1/artifacts`, {
    method: "POST",
    headers: {
      authorization: `Bearer ${token}`,
      "content-type": "application/json",
      traceparent: `00-${TRACE}-00f067aa0ba902b7-01`,
    },
    body: JSON.stringify({ type: "Topic", payload: null, correlation_id: "c" }),
  });
  expect(response.status).toBe(201);
  return ((await response.json()) as { artifacts: [{ id: string }] }).artifacts[0];
}

describe.each(BACKENDS)("on %s", { timeout: 120_000 }, (backend) => {
  describe("traces", () => {
    test("one trace spans publish, route, process and settle, also of the outputs", async () => {
      await using sink = await collector();
      await using servers = await boardServers(backend);
      let handed: string | undefined;
      const agents = [
        agent("writer", { consumes: "Topic", run: () => ({ type: "Draft", payload: null }) }),
        agent("reviewer", {
          consumes: "Draft",
          run({ traceparent }) {
            handed = traceparent;
            return { type: "Review", payload: null };
          },
        }),
      ];
      const khala = await servers.start({ agents, settings: { OTEL_EXPORTER_OTLP_ENDPOINT: sink.url } });
      await publishInTrace(khala);
      const [review] = await arrived(khala, "Review");
      await stands(khala, "c", "done");
      // Nobody works on the last one, so that a server may stop before it is routed.
      await eventually("all is routed", async () => {
        const lag = await khala.blackboard.lag();
        return lag.every(({ reader, lag }) => reader !== "router" || lag === "0");
      });
      const [[topic], [draft]] = [await listed(khala, "Topic"), await listed(khala, "Draft")];
      await servers.stop(khala);

      const board = sink.spans.filter((span) => attributesOf(span)["artifact.id"] !== undefined);
      expect(new Set(board.map(({ traceId }) => traceId))).toEqual(new Set([TRACE]));
      const find = (operation: string, id: string) => {
        const found = board.filter((span) => {
          const attributes = attributesOf(span);
          return attributes["messaging.operation.name"] === operation && attributes["artifact.id"] === id;
        });
        expect(
          found.map(({ name }) => name),
          `${operation} ${id}`,
        ).toHaveLength(1);
        return found[0]!;
      };
      const published = find("publish", topic!.id);
      const processed = find("process", topic!.id);
      const continued = find("process", draft!.id);
      const links = [
        [find("route", topic!.id), published],
        [processed, published],
        [find("settle", topic!.id), processed],
        [find("route", draft!.id), processed],
        [continued, processed],
        [find("settle", draft!.id), continued],
        [find("route", review!.id), continued],
      ];
      for (const [child, parent] of links)
        expect(child!.parentSpanId, `${child!.name} is part of ${parent!.name}`).toBe(parent!.spanId);
      expect(handed).toBe(`00-${TRACE}-${continued.spanId}-01`);
      const system = backend === "Kafka" ? "kafka" : "postgresql";
      for (const [of, ...operations] of [
        [topic!, "publish", "route", "process", "settle"],
        [draft!, "route", "process", "settle"],
        [review!, "route"],
      ] as const)
        for (const operation of operations)
          expect(attributesOf(find(operation, of.id)), `${operation} ${of.type}`).toMatchObject({
            "artifact.id": of.id,
            "artifact.type": of.type,
            correlation_id: "c",
            "messaging.system": system,
          });
      expect(attributesOf(processed)).toMatchObject({ "khala.agent": "writer", "khala.attempt": 1 });
      expect(attributesOf(find("settle", topic!.id))).toMatchObject({
        partition: expect.any(Number),
        offset: expect.stringMatching(/^\d+$/),
        "khala.outcome": "done",
      });
      const topics = ["publish", "route", "process", "settle"].map(
        (operation) => attributesOf(find(operation, topic!.id))["kafka.topic"],
      );
      const [artifacts, tasks, group] = ["artifacts", "tasks.writer", "agent.writer"].map((name) =>
        backend === "Kafka" ? expect.stringMatching(`^t[0-9a-f]{8}\\.${name}$`) : undefined,
      );
      expect(topics).toEqual([artifacts, artifacts, tasks, tasks]);
      expect(attributesOf(processed)["messaging.consumer.group.name"]).toEqual(group ?? "writer");
    });
  });

  describe("the documents of the board", () => {
    const CORRELATIONS = "blackboard.correlations";
    const AGENTS = "blackboard.agents";

    async function follower(khala: Khala, org: string) {
      const scopes = [CORRELATIONS, AGENTS];
      const { token } = await khala.auth.issuer!.mint({ sub: "eva", org_id: org, scopes });
      const endpoint = `${khala.url.replace("http", "ws")}/socket`;
      const socket = await openPhoenix(PHOENIX_CLIENTS[2], endpoint, { params: { token } });
      socket.connect();
      const channel = socket.channel("sync:v1");
      const seen: { key: string; payload: Record<string, unknown> }[] = [];
      channel.on("frame", (frame) => {
        for (const { doc_key, payload } of (frame as SyncFrame).update_batch?.updates ?? [])
          seen.push({ key: doc_key!, payload: payload as Record<string, unknown> });
      });
      expect(await answerOf(channel.join())).toMatchObject({ status: "ok" });
      expect(await answerOf(channel.push("subscribe", { topics: scopes }))).toMatchObject({ status: "ok" });
      const of = (key: string) => seen.filter((update) => update.key === key).map(({ payload }) => payload);
      return { seen, of, [Symbol.dispose]: () => socket[Symbol.dispose]() };
    }

    test("a client follows a correlation's progress on another server, to its end", async () => {
      await using servers = await boardServers(backend);
      const door = Promise.withResolvers<void>();
      let fixed = false;
      const agents = [
        agent("writer", { consumes: "Topic", run: () => ({ type: "Draft", payload: null }) }),
        agent("reviewer", {
          consumes: "Draft",
          async run() {
            await door.promise;
            return { type: "Review", payload: null };
          },
        }),
        agent("printer", {
          consumes: "Review",
          run() {
            if (!fixed) throw new FatalError("No paper.");
          },
        }),
      ];
      const [one, two] = [await servers.start({ agents }), await servers.start({ agents })];
      using eva = await follower(one, "acme");
      using mallory = await follower(one, "evil");
      await publish(two, { type: "Topic", payload: null, correlation_id: "c" });
      const key = "correlation:c";
      const shows = (document: object) =>
        eventually(`the document shows ${JSON.stringify(document)}`, () => {
          const last = eva.of(key).at(-1) ?? {};
          return Object.entries(document).every(([name, value]) => last[name] === value);
        });
      await shows({ status: "running", artifacts: "2", open: "1", done: "1", dead: "0" });
      door.resolve();
      await shows({ status: "failed", artifacts: "3", open: "0", done: "2", dead: "1" });
      await buried(two, "printer", 1);
      fixed = true;
      await two.blackboard.resumeCorrelation(ADA, "c");
      await shows({ status: "done", artifacts: "3", open: "0", done: "3", dead: "0" });
      await eventually("the agents are idle in their documents", () =>
        agents.every(({ name }) => {
          const last = eva.of(`board_agent:${name}`).at(-1);
          return last?.waiting === "0" && last.running === "0" && last.dead === "0";
        }),
      );
      await two.blackboard.pause("writer");
      await eventually("the pause is seen", () => eva.of("board_agent:writer").at(-1)?.state === "paused");
      expect(mallory.seen).toEqual([]);
    });
  });
});

describe.each(BACKENDS)("a dead letter on %s", (backend) => {
  test("has the trace of its artifact, from publication to the failed attempts", async () => {
    await using sink = await collector();
    await using servers = await boardServers(backend);
    const agents = [
      agent("printer", {
        consumes: "Topic",
        retry: { attempts: 2, base: 10 },
        run() {
          throw new Error("No paper.");
        },
      }),
    ];
    const khala = await servers.start({ agents, settings: { OTEL_EXPORTER_OTLP_ENDPOINT: sink.url } });
    const { id } = await publishInTrace(khala);
    const [letter] = await buried(khala, "printer", 1);
    await servers.stop(khala);
    const { traceparent = "" } = letter!.task!.artifacts[0];
    const [, traceId, spanId] = traceparent.split("-");
    expect(traceId).toBe(TRACE);
    const of = (operation: string) =>
      sink.spans.filter((span) => {
        const attributes = attributesOf(span);
        return attributes["messaging.operation.name"] === operation && attributes["artifact.id"] === id;
      });
    expect(of("publish")).toContainEqual(expect.objectContaining({ traceId: TRACE, spanId }));
    const attempts = of("process");
    expect(attempts.map((span) => attributesOf(span)["khala.attempt"])).toEqual([1, 2]);
    for (const span of attempts) expect(span).toMatchObject({ traceId: TRACE, parentSpanId: spanId });
    const settled = of("settle").map((span) => [
      attributesOf(span)["khala.outcome"],
      span.parentSpanId,
      span.traceId,
    ]);
    expect(settled).toEqual([
      ["retry", attempts[0]!.spanId, TRACE],
      ["dead", attempts[1]!.spanId, TRACE],
    ]);
  });
});
