import { execFile } from "node:child_process";
import { cp, mkdir, mkdtemp, readFile, rm, symlink } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { inspect, promisify } from "node:util";
import { type Certificates, makeCertificates } from "@khala/test-support/kafka/certificates";
import { kafkaHere, ownKafka, sharedKafka, startKafka } from "@khala/test-support/kafka/kafka";
import type { KafkaServer } from "@khala/test-support/kafka/server";
import { alterTopic, newTopic, readTopic } from "@khala/test-support/kafka/topics";
import { eventually } from "@khala/test-support/kit/eventually";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  type KafkaClient,
  type KafkaSettings,
  openKafkaClient,
} from "../../packages/kafka/src/client/client.ts";
import { openTopicConfigs } from "../../packages/kafka/src/topics/topic_setup.ts";

const PACKAGE = join(import.meta.dirname, "../../packages/kafka");
// Several Java machines, on a machine that may have much else to do.
const SLOW = { timeout: 120_000 };
let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "khala-kafka-test-"));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

const open = (bootstrap: string, more: Partial<KafkaSettings> = {}) =>
  openKafkaClient({ bootstrap, clientId: "khala-test", ...more });

async function send(client: KafkaClient, topic: string, ...texts: string[]): Promise<void> {
  const producer = client.producer();
  await producer.connect();
  try {
    await producer.send({ topic, messages: texts.map((value) => ({ key: "k", value })) });
  } finally {
    await producer.disconnect();
  }
}

/** Whether settings let us in by both clients: the one for records, and the one for the configs of topics. */
async function entered(settings: KafkaSettings): Promise<boolean> {
  const client = await openKafkaClient(settings);
  const topic = await newTopic(client);
  await send(client, topic, "inside");
  const configs = await openTopicConfigs(settings);
  try {
    return (await configs.describe([topic])).get(topic)?.get("cleanup.policy") === "delete";
  } finally {
    await configs.close();
  }
}

/** All that the client for the configs of topics says when it is not let in; no secret is in it. */
async function saidBy(settings: KafkaSettings): Promise<string> {
  const configs = await openTopicConfigs(settings);
  try {
    const error = await configs.describe(["any"]).then(
      () => undefined,
      (reason: unknown) => reason,
    );
    return withoutSecrets(inspect(error, { depth: Number.POSITIVE_INFINITY }), settings);
  } finally {
    await configs.close();
  }
}

/** What was said, if it says nothing that must stay secret. */
function withoutSecrets(said: string, { sasl, ssl }: Pick<KafkaSettings, "sasl" | "ssl">): string {
  for (const secret of [sasl?.password, ssl?.key, ssl?.passphrase])
    if (secret !== undefined) expect(said).not.toContain(secret);
  return said;
}

/** In which words we are not let in; no secret is in what is said meanwhile. */
async function refusal(settings: KafkaSettings): Promise<string> {
  const lines: string[] = [];
  const client = await openKafkaClient({ ...settings, log: (_, message) => lines.push(message) });
  const admin = client.admin();
  admin.connect().catch((error: Error) => lines.push(error.message));
  const word = /authentication failed|certificate verify failed|bad certificate|certificate required/i;
  try {
    return await eventually("a refusal", () =>
      word.exec(withoutSecrets(lines.join("\n"), settings))?.[0].toLowerCase(),
    );
  } finally {
    await admin.disconnect();
  }
}

describe.runIf(kafkaHere()).concurrent("the Kafka shared by test files", SLOW, () => {
  test("a committed transaction can be read, with keys, headers and tombstones, and an aborted one cannot", async () => {
    const client = await open(await sharedKafka());
    const topic = await newTopic(client);
    const producer = client.producer({ transactionalId: topic, transactionTimeoutMs: 60_000 });
    await producer.connect();
    const aborted = await producer.transaction();
    await aborted.send({ topic, messages: [{ key: "a", value: "aborted" }] });
    await aborted.abort();
    const committed = await producer.transaction();
    await committed.send({ topic, messages: [{ key: "a", value: "committed", headers: { h: "1" } }] });
    await committed.send({ topic, messages: [{ key: "a", value: null }] });
    await committed.commit();
    await producer.disconnect();
    const records = await readTopic(client, topic, 2);
    expect(records.map(({ key, value }) => [String(key), value && String(value)])).toEqual([
      ["a", "committed"],
      ["a", null],
    ]);
    expect(String(records[0]?.headers?.h)).toBe("1");
  });

  test("the settings of a topic can be read and changed", async () => {
    const bootstrap = await sharedKafka();
    const client = await open(bootstrap);
    const topic = await newTopic(client, { configEntries: [{ name: "cleanup.policy", value: "compact" }] });
    const kafka = { bootstrap, clientId: "khala-test" };
    await alterTopic(kafka, topic, { "retention.ms": "1234" });
    const configs = await openTopicConfigs(kafka);
    const settings = (await configs.describe([topic])).get(topic);
    expect([settings?.get("cleanup.policy"), settings?.get("retention.ms")]).toEqual(["compact", "1234"]);
    await expect(configs.describe([`${topic}.none`])).rejects.toThrow();
    await configs.close();
  });
});

describe.runIf(ownKafka() !== undefined).concurrent("a broker with logins", SLOW, () => {
  const sasl = { username: "alice", password: "a secret of alice" } as const;
  let certificates: Certificates;
  beforeAll(async () => {
    certificates = await makeCertificates(folder);
  });

  describe("by name and password", () => {
    let broker: KafkaServer;
    beforeAll(async () => {
      broker = await startKafka({ users: { alice: sasl.password } });
    });
    afterAll(() => broker[Symbol.asyncDispose]());
    const mechanisms = ["plain", "scram-sha-256", "scram-sha-512"] as const;

    test.each(mechanisms)("%s, and the error hides the wrong password", async (mechanism) => {
      const settings = { bootstrap: broker.bootstrap, clientId: "khala-test" };
      expect(await entered({ ...settings, sasl: { ...sasl, mechanism } })).toBe(true);
      const wrong = { ...settings, sasl: { ...sasl, mechanism, password: "a guess" } };
      expect(await refusal(wrong)).toBe("authentication failed");
      expect(await saidBy(wrong)).toMatch(/authentication failed/i);
    });
  });

  test("TLS with passwords: files or PEM, and an unknown authority is not trusted", async () => {
    await using broker = await startKafka({
      users: { alice: sasl.password },
      tls: { keystore: certificates.broker },
    });
    const login = { ...sasl, mechanism: "scram-sha-512" } as const;
    const settings = { bootstrap: broker.bootstrap, clientId: "khala-test", sasl: login };
    expect(await entered({ ...settings, ssl: { ca: certificates.ca } })).toBe(true);
    expect(await entered({ ...settings, ssl: { ca: await readFile(certificates.ca, "utf8") } })).toBe(true);
    expect(await refusal({ ...settings, ssl: {} })).toBe("certificate verify failed");
  });

  test("TLS with certificates on both sides, the key behind a passphrase", async () => {
    await using broker = await startKafka({
      tls: { keystore: certificates.broker, truststore: certificates.ca, clients: true },
    });
    const { ca, cert, key, passphrase } = certificates;
    const settings = { bootstrap: broker.bootstrap, clientId: "khala-test" };
    expect(await entered({ ...settings, ssl: { ca, cert, key, passphrase } })).toBe(true);
    const [certText, keyText] = [await readFile(cert, "utf8"), await readFile(key, "utf8")];
    expect(await entered({ ...settings, ssl: { ca, cert: certText, key: keyText, passphrase } })).toBe(true);
    expect(await refusal({ ...settings, ssl: { ca } })).toMatch(/bad certificate|certificate required/);
  });
});

describe.runIf(kafkaHere())("an unusable private key is never printed", () => {
  const SECRET = "MIGHAgEAMBMGByqGSM49AgEG";
  const settings = (key: string) => ({ bootstrap: "127.0.0.1:1", clientId: "khala-test", ssl: { key } });

  test.each([
    ["without its first line", SECRET],
    ["in quotes", `"-----BEGIN PRIVATE KEY-----\n${SECRET}\n-----END PRIVATE KEY-----"`],
    ["too long for a name", SECRET.repeat(1_000)],
  ])("%s", async (_, key) => {
    for (const opened of [openKafkaClient, openTopicConfigs]) {
      const error = await opened(settings(key)).catch((reason: unknown) => reason);
      expect(error).toMatchObject({ code: "invalid_request", details: { field: "KAFKA_SSL_KEY" } });
      expect(inspect(error, { depth: Number.POSITIVE_INFINITY })).not.toContain(SECRET);
    }
  });

  test("that is PEM, but not a key", async () => {
    const key = `-----BEGIN PRIVATE KEY-----\n${SECRET}\n-----END PRIVATE KEY-----\n`;
    const lines: string[] = [];
    const client = await openKafkaClient({ ...settings(key), log: (_, message) => lines.push(message) });
    const error = await client
      .admin()
      .connect()
      .catch((reason: unknown) => reason);
    expect(error).toBeInstanceOf(Error);
    const said = `${lines.join("\n")}${inspect(error, { depth: Number.POSITIVE_INFINITY })}`;
    expect(said).not.toContain(SECRET);
    expect(await saidBy(settings(key))).not.toContain(SECRET);
  });
});

test("without the client, the error says how to get it", async () => {
  const away = join(folder, "away");
  await mkdir(join(away, "node_modules/@khala"), { recursive: true });
  await cp(join(PACKAGE, "src"), join(away, "src"), { recursive: true });
  for (const name of ["contracts", "server"])
    await symlink(join(PACKAGE, "..", name), join(away, "node_modules/@khala", name));
  const program = `import { openKafkaClient } from "./src/client/client.ts";
    await openKafkaClient({ bootstrap: "127.0.0.1:1", clientId: "x" }).catch(({ code, message }) => console.log(code, message));`;
  const flags = ["--conditions=khala-source", "--input-type=module", "-e", program];
  const { stdout } = await promisify(execFile)(process.execPath, flags, { cwd: away });
  expect(stdout).toMatch(/^unavailable The Kafka client @confluentinc\/kafka-javascript cannot be loaded/);
  expect(stdout).toContain("npm install @khala/kafka");
});
