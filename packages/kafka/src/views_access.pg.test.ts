import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ownKafka, startKafka } from "../../../e2e/support/kafka.ts";
import { makeCertificates } from "../../../e2e/support/kafka_certificates.ts";
import { artifact, openStage } from "./test_support.ts";

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "khala-kafka-views-"));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

describe.runIf(ownKafka() !== undefined)("a broker with TLS and passwords", () => {
  test("whatever reads and writes gets in by the same settings", { timeout: 90_000 }, async () => {
    const certificates = await makeCertificates(folder);
    const password = "a secret of alice";
    await using broker = await startKafka({
      users: { alice: password },
      tls: { keystore: certificates.broker },
    });
    const lines: string[] = [];
    await using stage = await openStage({
      // So that a body is read from the log, by a client of its own.
      indexBytes: 0,
      kafka: {
        bootstrap: broker.bootstrap,
        clientId: "secret",
        sasl: { mechanism: "scram-sha-512", username: "alice", password },
        ssl: { ca: certificates.ca },
        log: (_, message) => lines.push(message),
      },
    });
    const views = await stage.views();
    const draft = artifact();
    await stage.publisher(views).publish([draft]);
    expect(await views.get(draft.id)).toEqual(draft);
    expect(lines.join("\n")).not.toContain(password);
  });
});
