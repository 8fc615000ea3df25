import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { findHelm } from "@khala/test-support/clients/helm";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { parse, parseAllDocuments } from "yaml";
import { describeConfig, readConfig } from "../../packages/server/src/main/config.ts";
import { ROOT, run } from "../../scripts/run.ts";

const CHART = join(ROOT, "deploy/helm/khala");
const read = (file: string) => readFile(join(ROOT, file), "utf8");
/** A helm that is not a release build takes the cluster for an old one. */
const TEMPLATE = ["template", "--kube-version=1.31", "live"];
const settings = describeConfig(readConfig({}));

// What the tests look at, of whatever kind.
// biome-ignore lint/suspicious/noExplicitAny: manifests are checked by what the tests expect of them
type Manifest = { readonly kind: string } & Record<string, any>;

describe("the Helm chart", () => {
  test("has the version of the packages, and scales by a metric that servers report", async () => {
    const { version } = JSON.parse(await read("package.json")) as { version: string };
    expect(parse(await read("deploy/helm/khala/Chart.yaml"))).toMatchObject({ version, appVersion: version });
    const [, metric] = /name: (khala_\w+)/.exec(await read("deploy/helm/khala/templates/autoscaling.yaml"))!;
    expect(await read("docs/sync/METRICS.md")).toContain(`| \`${metric}\` | gauge | |`);
  });

  test("its schema describes every value, and refuses secrets and the chart's own settings in env", async () => {
    const schema = JSON.parse(await read("deploy/helm/khala/values.schema.json"));
    const described = (values: object, properties: Record<string, { properties?: object }>) => {
      for (const [name, value] of Object.entries(values)) {
        expect(Object.keys(properties), name).toContain(name);
        const inner = properties[name]!.properties;
        if (inner) described(value, inner as Record<string, { properties?: object }>);
      }
    };
    described(parse(await read("deploy/helm/khala/values.yaml")), schema.properties);
    const secrets = settings.filter(({ secret }) => secret).map(({ name }) => name);
    const own = ["KHALA_HOST", "KHALA_PORT", "KHALA_WORKER_PORT", "KHALA_DATA_DIR"];
    expect(new Set(schema.properties.env.propertyNames.not.enum)).toEqual(new Set([...secrets, ...own]));
  });
});

describe("with helm", { timeout: 60_000 }, () => {
  let folder: string;
  let helm: string | undefined;
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "khala-helm-"));
    helm = await findHelm(AbortSignal.timeout(590_000));
    if (!helm)
      console.warn(
        "SKIPPED: the Helm chart, because helm is not on PATH. Install it, or set KHALA_TEST_HELM=build.",
      );
  }, 600_000);
  afterAll(() => rm(folder, { recursive: true, force: true }));

  /** Runs helm without the user's own settings and caches. */
  const call = async (command: readonly string[], values: object) => {
    const file = join(folder, "values.json");
    await writeFile(file, JSON.stringify(values));
    const env = { PATH: process.env.PATH, HOME: folder };
    return run(helm!, [...command, CHART, "--values", file], ROOT, { env });
  };
  const render = async (values: object): Promise<Manifest[]> => {
    const { code, output } = await call(TEMPLATE, values);
    expect(code, output).toBe(0);
    return parseAllDocuments(output).flatMap((document) => {
      expect(document.errors).toEqual([]);
      return (document.toJS() as Manifest | null) ?? [];
    });
  };
  const kinds = (manifests: readonly Manifest[]) => manifests.map(({ kind }) => kind).sort();
  const one = (manifests: readonly Manifest[], kind: string) =>
    manifests.find((found) => found.kind === kind)!;
  const secret = { DATABASE_URL: "postgres://khala@db/khala", KHALA_AUTH_SECRETS: "k1:c2VjcmV0" };
  const everything = {
    secret,
    env: { KHALA_DRAIN_MS: 12_001, KHALA_MAX_STORED_BYTES_PER_ORG: 107_374_182_400, KHALA_WAKEUPS: false },
    autoscaling: { enabled: true, sockets: 5_000 },
    networkPolicy: { from: [{ podSelector: {} }], egress: [{ ports: [{ port: 5432 }] }] },
    serviceMonitor: { enabled: true, labels: { release: "prometheus" } },
    podAnnotations: { a: "b" },
    podLabels: { team: "chat" },
    extraVolumes: [{ name: "ca", secret: { secretName: "ca" } }],
    extraVolumeMounts: [{ name: "ca", mountPath: "/ca" }],
    imagePullSecrets: [{ name: "registry" }],
    tolerations: [{ operator: "Exists" }],
    nodeSelector: { disk: "fast" },
    serviceAccountName: "khala",
  };

  test("passes helm lint, with few values and with many", async (context) => {
    context.skip(!helm, "helm is not on PATH");
    for (const values of [{ secret }, everything]) {
      const { code, output } = await call(["lint", "--strict"], values);
      expect(code, output).toBe(0);
    }
  });

  test("pods run without root on a read-only root filesystem, with probes, and may drain before a kill", async (context) => {
    context.skip(!helm, "helm is not on PATH");
    const manifests = await render({ secret });
    expect(kinds(manifests)).toEqual([
      "ConfigMap",
      "Deployment",
      "NetworkPolicy",
      "PodDisruptionBudget",
      "Secret",
      "Service",
    ]);
    const { spec } = one(manifests, "Deployment").spec.template;
    expect(spec.securityContext).toMatchObject({ runAsNonRoot: true, runAsUser: 1000 });
    const [container] = spec.containers;
    expect(container.securityContext).toEqual({
      allowPrivilegeEscalation: false,
      readOnlyRootFilesystem: true,
      capabilities: { drop: ["ALL"] },
    });
    expect(container.startupProbe.httpGet.path).toBe("/healthz");
    expect(container.livenessProbe.httpGet.path).toBe("/healthz");
    expect(container.readinessProbe.httpGet.path).toBe("/readyz");
    expect(container.lifecycle.preStop.exec.command).toEqual(["sleep", "5"]);
    // 5 s before SIGTERM, 5 s of KHALA_DRAIN_MS, 30 s after which the server ends by itself, 5 s to spare.
    expect(spec.terminationGracePeriodSeconds).toBe(70);
    expect(one(manifests, "Secret").stringData).toEqual(secret);
  });

  test("passes every setting to the pods unchanged", async (context) => {
    context.skip(!helm, "helm is not on PATH");
    const manifests = await render(everything);
    const { data, metadata } = one(manifests, "ConfigMap");
    expect(data).toEqual({
      KHALA_DRAIN_MS: "12001",
      KHALA_MAX_STORED_BYTES_PER_ORG: "107374182400",
      KHALA_WAKEUPS: "false",
    });
    const { spec } = one(manifests, "Deployment").spec.template;
    expect(spec.containers[0].envFrom).toEqual([
      { configMapRef: { name: metadata.name } },
      { secretRef: { name: metadata.name } },
    ]);
    expect(spec.terminationGracePeriodSeconds).toBe(53);
    expect(kinds(manifests)).toEqual(expect.arrayContaining(["HorizontalPodAutoscaler", "ServiceMonitor"]));
    const { metrics } = one(manifests, "HorizontalPodAutoscaler").spec;
    expect(metrics.map(({ type }: { type: string }) => type)).toEqual(["Pods", "Resource"]);
    expect(one(manifests, "NetworkPolicy").spec).toMatchObject({
      policyTypes: ["Ingress", "Egress"],
      ingress: [{ ports: [{ port: "http" }], from: everything.networkPolicy.from }],
      egress: everything.networkPolicy.egress,
    });
  });

  test("uses an existing Secret unchanged", async (context) => {
    context.skip(!helm, "helm is not on PATH");
    const manifests = await render({ existingSecret: "mine" });
    expect(kinds(manifests)).not.toContain("Secret");
    const [container] = one(manifests, "Deployment").spec.template.spec.containers;
    expect(container.envFrom[1]).toEqual({ secretRef: { name: "mine" } });
  });

  test.for<[string, object]>([
    ["no database", {}],
    ["a secret in the ConfigMap", { secret, env: { REDIS_URL: "redis://redis" } }],
    ["another port", { secret, env: { KHALA_PORT: 5000 } }],
    ["a misspelt value", { secret, replicaCount: 3 }],
    ["autoscaling by nothing", { secret, autoscaling: { enabled: true, cpu: 0 } }],
  ])("refuses %s", async ([, values], context) => {
    context.skip(!helm, "helm is not on PATH");
    const { code, output } = await call(TEMPLATE, values);
    expect(code, output).not.toBe(0);
    expect(output).toContain("don't meet the specifications of the schema");
  });
});

describe("the systemd unit", () => {
  test("waits for a stop as long as the server takes at most, and does not restart after wrong settings", async () => {
    const unit = await read("deploy/systemd/khala.service");
    const [, grace] = /^const GRACE_MS = ([\d_]+);$/m.exec(
      await read("packages/cli/src/local/run_until_signal.ts"),
    )!;
    const stop = Number(/^TimeoutStopSec=(\d+)$/m.exec(unit)![1]);
    expect(stop * 1_000).toBeGreaterThan(readConfig({}).KHALA_DRAIN_MS + Number(grace!.replaceAll("_", "")));
    const compose = Number(/^ +stop_grace_period: (\d+)s$/m.exec(await read("compose.yaml"))![1]);
    expect(compose).toBe(stop);
    expect(unit).toMatch(/^RestartPreventExitStatus=2$/m);
    expect(unit).toMatch(/^User=khala$/m);
  });

  test("is valid to systemd", async (context) => {
    const found = await run("systemd-analyze", ["--version"]);
    context.skip(found.code !== 0, "systemd-analyze is not on PATH");
    const { code, output } = await run("systemd-analyze", ["verify", "./deploy/systemd/khala.service"]);
    expect({ code, output }).toEqual({ code: 0, output: "" });
  });
});
