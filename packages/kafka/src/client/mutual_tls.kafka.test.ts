import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import {
  Heard,
  makeTestArtifact,
  newName,
  routeByTags,
  rules,
} from "@khala/test-support/conformance/board/support";
import { dead, done, payloadOf, retry, start, Worker } from "@khala/test-support/conformance/board/worker";
import { type Certificates, makeCertificates } from "@khala/test-support/kafka/certificates";
import { ownKafka, startKafka } from "@khala/test-support/kafka/kafka";
import type { KafkaServer } from "@khala/test-support/kafka/server";
import { testContext } from "@khala/test-support/kit/context";
import { eventually } from "@khala/test-support/kit/eventually";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { openBoard } from "../open_board.ts";
import type { KafkaSettings } from "./client.ts";

const RETRY_MS = 200;

describe.runIf(ownKafka() !== undefined)(
  "a broker that requires client certificates",
  { timeout: 120_000 },
  () => {
    let folder: string;
    let certificates: Certificates;
    let broker: KafkaServer;
    beforeAll(async () => {
      folder = await mkdtemp(join(tmpdir(), "khala-mutual-tls-"));
      certificates = await makeCertificates(folder);
      const { broker: keystore, ca: truststore } = certificates;
      broker = await startKafka({ tls: { keystore, truststore, clients: true } });
    });
    afterAll(async () => {
      await broker?.[Symbol.asyncDispose]();
      await rm(folder, { recursive: true, force: true });
    });

    const open = async (ssl: NonNullable<KafkaSettings["ssl"]>, prefix: string) =>
      openBoard(await testContext(), {
        agents: [rules("agent")],
        route: routeByTags,
        observer: new Heard(),
        kafka: { bootstrap: broker.bootstrap, clientId: prefix, ssl },
        prefix,
        partitions: 2,
        producers: 2,
        retryDelaysMs: [RETRY_MS],
        sessionTimeoutMs: 30_000,
        heartbeatMs: 300,
        // Forces a body to be read from the log, by another client.
        indexBytes: 0,
      });

    const asText = async (name: string) => readFile(name, "utf8");
    test.concurrent.each([
      { as: "files", read: async (name: string) => name },
      { as: "PEM", read: asText },
    ])("a whole board works with certificates on both sides, as $as", async ({ as, read }) => {
      const [ca, cert, key] = await Promise.all(
        [certificates.ca, certificates.cert, certificates.key].map(read),
      );
      await using parts = new AsyncDisposableStack();
      const { passphrase } = certificates;
      const board = await open({ ca: ca!, cert: cert!, key: key!, passphrase }, `${as}.`);
      parts.defer(() => board.stop());
      const worker = new Worker("agent", (task) => {
        if (payloadOf(task) === "never") return dead();
        return payloadOf(task) === "late" && task.attempt === 1 ? retry(RETRY_MS) : done();
      });
      parts.use(start(worker, board));
      const correlation_id = newName("c");
      const artifacts = ["soon", "late", "never"].map((payload) =>
        makeTestArtifact({ to: "agent", payload, correlation_id }),
      );
      await board.publish(artifacts);
      await eventually("all is settled", async () => {
        const [counts] = await board.correlations([{ org: "acme", name: correlation_id }]);
        return counts?.open === 0 && counts.done === 2 && counts.dead === 1;
      });
      expect(worker.errors).toEqual([]);
      expect(await board.get(artifacts[0]!.org_id, artifacts[0]!.id)).toEqual(artifacts[0]);
      const { deadLetters } = await board.deadLetters("agent", { orgs: ["acme"], limit: 10 });
      expect(deadLetters.map(({ failure }) => failure.message)).toEqual(["never"]);
      await eventually("nobody lags", async () => (await board.lag()).every(({ lag }) => lag === "0"));
    });

    test.concurrent("a board without a certificate does not open, and names the reason and the settings to check", async () => {
      await expect(open({ ca: certificates.ca }, "none.")).rejects.toMatchObject({
        code: "unavailable",
        message: expect.stringMatching(
          /^Kafka cannot be reached: .*(bad certificate|certificate required).*KAFKA_SSL_/,
        ),
      });
    });
  },
);
