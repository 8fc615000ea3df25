import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Board } from "@khala/server/blackboard";
import {
  Heard,
  makeTestArtifact,
  makeTestTask,
  newName,
  routeByTags,
  rules,
} from "@khala/test-support/conformance/board/support";
import { dead, done, payloadOf, retry, start, Worker } from "@khala/test-support/conformance/board/worker";
import { type Certificates, makeCertificates } from "@khala/test-support/kafka/certificates";
import { ownKafka, startKafka } from "@khala/test-support/kafka/kafka";
import {
  type AccessLists,
  documentedRights,
  openAccessLists,
  type Right,
} from "@khala/test-support/kafka/rights";
import type { KafkaServer } from "@khala/test-support/kafka/server";
import { testContext } from "@khala/test-support/kit/context";
import { eventually } from "@khala/test-support/kit/eventually";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { askKafka } from "../index.ts";
import { openBoard } from "../open_board.ts";
import type { KafkaBoardSettings } from "../settings.ts";
import type { KafkaSettings } from "./client.ts";

const USERS = {
  admin: "a secret of admin",
  publisher: "a secret of publisher",
  router: "a secret of router",
  worker: "a secret of worker",
  loose: "a secret of loose",
};
type User = keyof typeof USERS;
type Mechanism = NonNullable<KafkaSettings["sasl"]>["mechanism"];
const RETRY_MS = 500;

describe.runIf(ownKafka() !== undefined)(
  "a broker with TLS, passwords and access lists",
  {
    timeout: 120_000,
  },
  () => {
    let folder: string;
    let certificates: Certificates;
    let broker: KafkaServer;
    const lines: string[] = [];
    const boards: Board[] = [];
    beforeAll(async () => {
      folder = await mkdtemp(join(tmpdir(), "khala-kafka-access-"));
      certificates = await makeCertificates(folder);
      broker = await startKafka({
        users: USERS,
        tls: { keystore: certificates.broker },
        properties: {
          "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
          // The broker and its controller speak with each other in the clear, without a login.
          "super.users": "User:ANONYMOUS;User:admin",
        },
      });
    }, 120_000);
    afterAll(async () => {
      await Promise.all(boards.map((board) => board.stop()));
      await broker?.[Symbol.asyncDispose]();
      await rm(folder, { recursive: true, force: true });
    }, 60_000);

    const kafkaOf = (user: User, mechanism: Mechanism, ca = certificates.ca): KafkaSettings => ({
      bootstrap: broker.bootstrap,
      clientId: user,
      sasl: { mechanism, username: user, password: USERS[user] },
      ssl: { ca },
      log: (_, message) => lines.push(message),
    });

    async function open(kafka: KafkaSettings, routes: boolean, given: Partial<KafkaBoardSettings> = {}) {
      const heard = new Heard();
      const context = await testContext({ seed: boards.length + 1, onWarning: (line) => lines.push(line) });
      const board = await openBoard(context, {
        agents: [rules("agent")],
        route: routeByTags,
        routes,
        observer: heard,
        kafka,
        partitions: 2,
        producers: 2,
        retryDelaysMs: [RETRY_MS],
        sessionTimeoutMs: 30_000,
        heartbeatMs: 300,
        // Forces a body to be read from the log, by another client.
        indexBytes: 0,
        ...given,
      });
      boards.push(board);
      return { board, heard };
    }

    /** The payloads that succeed at once, at the second attempt, and never. */
    async function throughTheBoard(publisher: Board, runner: Board): Promise<void> {
      const correlation_id = newName("c");
      const given = { to: "agent", correlation_id };
      const made = makeTestArtifact({ type: "Made", payload: "of it", correlation_id });
      const worker = new Worker("agent", (task) => {
        if (payloadOf(task) === "never") return dead();
        if (payloadOf(task) === "late") return task.attempt === 1 ? retry(RETRY_MS) : done();
        return done(made);
      });
      await using _ = start(worker, runner);
      await publisher.publish([
        makeTestArtifact({ ...given, payload: "soon" }),
        makeTestArtifact({ ...given, payload: "late" }),
        makeTestArtifact({ ...given, payload: "never" }),
        makeTestArtifact({ breaks: "agent", correlation_id }),
      ]);
      const held = makeTestArtifact({ payload: "late", correlation_id });
      await publisher.enqueue([makeTestTask("agent", held)]);
      await eventually("all is settled", async () => {
        const [counts] = await publisher.correlations([{ org: "acme", name: correlation_id }]);
        return counts?.open === 0 && counts.done === 3 && counts.dead === 2;
      });
      expect(worker.errors).toEqual([]);
      expect(await publisher.get(made.org_id, made.id)).toEqual(made);
      const { deadLetters } = await publisher.deadLetters("agent", {
        orgs: ["acme"],
        limit: 10,
        correlationId: correlation_id,
      });
      expect(deadLetters.map(({ failure }) => failure.message).sort()).toEqual(["never", "where() threw"]);
      await eventually("nothing waits", async () => (await publisher.lag()).every(({ lag }) => lag === "0"));
      expect(await publisher.counts()).toMatchObject([{ agent: "agent", waiting: 0 }]);
    }

    test.concurrent.each(["plain", "scram-sha-512"] as const)(
      "a whole board works behind TLS and %s",
      async (mechanism) => {
        const ca = mechanism === "plain" ? await readFile(certificates.ca, "utf8") : certificates.ca;
        const prefix = `${mechanism}.`;
        // Exactly once with one mechanism is enough; without transactions the client makes other calls.
        const given = { prefix, transactions: mechanism !== "plain" };
        const { board } = await open(kafkaOf("admin", mechanism, ca), true, given);
        await throughTheBoard(board, board);
        await board.stop();
      },
    );

    const mechanisms = ["plain", "scram-sha-256", "scram-sha-512"] as const;
    test.concurrent.each(mechanisms)("%s: askKafka connects, or reports why it cannot", async (mechanism) => {
      const own = kafkaOf("admin", mechanism);
      expect(await askKafka(own)).toEqual(expect.any(Array));
      const wrong = { ...own, sasl: { ...own.sasl!, password: "another" } };
      await expect(askKafka(wrong)).rejects.toThrow(/Kafka cannot be reached: .*authentication failed/i);
    });

    describe("whose users have the documented rights", () => {
      const ROLES: Record<Exclude<User, "admin">, readonly string[]> = {
        publisher: ["every process", "the first to start"],
        router: ["every process", "those that route"],
        worker: ["every process", "processes that run agents"],
        loose: ["every process", "those that route", "processes that run agents"],
      };
      let rights: Right[];
      let lists: AccessLists;
      let publisher: Board;
      let worker: Awaited<ReturnType<typeof open>>;
      beforeAll(async () => {
        rights = await documentedRights();
        lists = await openAccessLists(kafkaOf("admin", "plain"), (user) => ({
          "<agent>": "agent",
          "<KAFKA_TX_ID>": user,
        }));
        for (const [user, roles] of Object.entries(ROLES))
          await lists.grant(
            user,
            rights.filter(
              ({ who, kind }) => roles.includes(who) && (user !== "loose" || kind !== "transactional ids"),
            ),
          );
        const kafka = (user: User) => kafkaOf(user, "scram-sha-512");
        publisher = (await open(kafka("publisher"), false)).board;
        await open(kafka("router"), true);
        worker = await open(kafka("worker"), false);
      }, 120_000);
      afterAll(() => lists?.close());

      /** The denied operations, as the broker logs them. */
      const denied = (user: User, what = "") =>
        broker
          .output()
          .split("\n")
          .filter((line) => line.includes(`User:${user} is Denied`) && line.includes(what));

      test("the documented roles are the tested ones", () => {
        expect([...new Set(rights.map(({ who }) => who))].sort()).toEqual(
          [...new Set(Object.values(ROLES).flat())].sort(),
        );
      });

      test("the documented rights are enough to publish, route, retry, settle and observe", async () => {
        await throughTheBoard(publisher, worker.board);
        for (const user of ["publisher", "router", "worker"] as const) expect(denied(user)).toEqual([]);
      });

      test("without transactions no rights on transactional ids are needed", async () => {
        const { board } = await open(kafkaOf("loose", "scram-sha-512"), true, { transactions: false });
        await throughTheBoard(board, board);
        await board.stop();
        expect(denied("loose")).toEqual([]);
      });

      const right = (who: string, kind: string, name: string): Right => {
        const found = rights.filter((each) => each.who === who && each.kind === kind && each.name === name);
        expect(found).toHaveLength(1);
        return found[0]!;
      };

      test("publishes nothing without rights on the index", async () => {
        const missing = rights.find(
          ({ name, operation }) => name === "flock.by_id" && operation === "Write",
        )!;
        await lists.revoke("publisher", missing);
        await eventually("publishing is refused", () =>
          publisher.publish([makeTestArtifact()]).then(
            () => false,
            ({ cause }: Error) => /authorization/i.test((cause as Error).message),
          ),
        );
        await lists.grant("publisher", [missing]);
        await eventually("it is taken again", () =>
          publisher.publish([makeTestArtifact()]).then(
            () => true,
            () => false,
          ),
        );
        expect(denied("publisher", "Topic:LITERAL:flock.by_id")).not.toEqual([]);
      });

      test("reports no lag without rights on groups", async () => {
        const missing = right("every process", "groups", "flock.*");
        await lists.revoke("publisher", missing);
        await eventually("the lag is refused", () =>
          publisher.lag().then(
            () => false,
            () => denied("publisher", "Group:LITERAL:flock.router").length > 0,
          ),
        );
        await lists.grant("publisher", [missing]);
      });

      test("settles nothing without rights on the processed topic, until they are granted", async () => {
        const missing = right("processes that run agents", "topics", "flock.processed");
        await lists.revoke("worker", missing);
        const agent = new Worker("agent");
        await using _ = start(agent, worker.board);
        const publish = async () => {
          const artifact = makeTestArtifact({ to: "agent" });
          await publisher.publish([artifact]);
          await eventually("it has run", () => agent.runs.some(({ task }) => task.id === artifact.id));
          return artifact.id;
        };
        // The broker applies the change within moments.
        await eventually("a settlement is refused", async () => {
          await publish();
          return denied("worker", "Topic:LITERAL:flock.processed").length > 0;
        });
        const id = await publish();
        const isSettled = () => worker.heard.settledBy("agent").some(({ task }) => task.id === id);
        expect(isSettled()).toBe(false);
        await lists.grant("worker", [missing]);
        await eventually("it is settled", isSettled);
      });
    });

    test("logs contain no password", () => {
      const said = `${lines.join("\n")}${broker.output()}`;
      for (const password of Object.values(USERS)) expect(said).not.toContain(password);
    });
  },
);
