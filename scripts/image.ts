// npm run image: builds the image with Docker, Podman or Buildah, whichever works here, and tries it: size, user, read-only root
// filesystem, /readyz, a stop in order. DATABASE_URL names a PostgreSQL that this machine reaches; without it one is started beside it.
// Arguments go to the build: npm run image -- --build-arg KAFKA=yes
// With --pin it writes the digests that the tags have now into Dockerfile and compose.yaml, and does no more. With --release it refuses to
// build before that is done.
import { randomBytes } from "node:crypto";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { IMAGE_FILES, imagesOf, withDigests } from "./build/image_digests.ts";
import { must, ROOT, run } from "./run.ts";

const IMAGE = "khala:smoke";
const LIMIT_MB = 250;
const PORT = process.env.KHALA_IMAGE_PORT ?? "4000";
const POSTGRES = "khala-smoke-postgres";
const SERVER = "khala-smoke";
const READY_MS = 60_000;

const engine = await findEngine();
if (!engine) {
  console.error("None of docker, podman and buildah works here. Install one, or start its daemon.");
  process.exit(1);
}
const call = (...args: string[]) => must(engine, args, ROOT);
const failed: string[] = [];
const args = process.argv.slice(2);
if (args.includes("--pin")) {
  await pinImages();
  process.exit();
}
const unpinned = (await readImageFiles()).flatMap(({ text }) =>
  imagesOf(text).flatMap(({ name, pinned }) => (pinned ? [] : name)),
);
if (unpinned.length > 0) {
  console.error(`Not pinned to a digest: ${unpinned.join(", ")}. Run: npm run image -- --pin`);
  if (args.includes("--release")) process.exit(1);
}

console.log(`Building ${IMAGE} with ${engine}.`);
await call(
  engine === "buildah" ? "bud" : "build",
  "--tag",
  IMAGE,
  ...args.filter((each) => each !== "--release"),
  ".",
);
if (engine === "buildah") await tryWithBuildah();
else await tryInContainers();
if (failed.length > 0) {
  console.error(`${failed.length} checks failed: ${failed.join(", ")}.`);
  process.exit(1);
}

async function findEngine(): Promise<string | undefined> {
  for (const name of ["docker", "podman", "buildah"])
    if ((await run(name, ["info"], ROOT, { timeout: 20_000 })).code === 0) return name;
  return undefined;
}

/** The files that name images. */
function readImageFiles() {
  return Promise.all(
    IMAGE_FILES.map(async (file) => ({ file, text: await readFile(join(ROOT, file), "utf8") })),
  );
}

/** Asks the registry for the digest of every tag, and writes it into the files. */
async function pinImages(): Promise<void> {
  if (engine === "buildah") throw new Error("Digests are read with Docker or Podman. Install one of them.");
  const files = await readImageFiles();
  const digests = new Map<string, string>();
  for (const { name } of files.flatMap(({ text }) => imagesOf(text))) {
    await call("pull", "--quiet", name);
    const found = await call("image", "inspect", '--format={{join .RepoDigests " "}}', name);
    const [digest] = /sha256:[0-9a-f]{64}/.exec(found) ?? [];
    if (!digest) throw new Error(`${engine} knows no digest of ${name}: ${found}`);
    digests.set(name, digest);
    console.log(`${name}@${digest}`);
  }
  for (const { file, text } of files) await writeFile(join(ROOT, file), withDigests(text, digests));
}

function report(what: string, ok: boolean, found: string): void {
  console.log(`${ok ? "✓" : "✗"} ${what.padEnd(28)} ${found}`);
  if (!ok) failed.push(what);
}

function reportSize(bytes: number): void {
  const mb = bytes / 1e6;
  report(`smaller than ${LIMIT_MB} MB`, mb < LIMIT_MB, `${mb.toFixed(0)} MB, uncompressed`);
}

function reportUser(uid: string): void {
  report("runs as user 1000, not root", uid.trim() === "1000", `uid ${uid.trim()}`);
}

async function tryInContainers(): Promise<void> {
  const size = await call("run", "--rm", "--user=0", "--entrypoint=du", IMAGE, "-sxb", "/");
  reportSize(Number(/^\d+/m.exec(size)?.[0]));
  reportUser(await call("run", "--rm", "--entrypoint=id", IMAGE, "-u"));
  try {
    const url = process.env.DATABASE_URL ?? (await startPostgres());
    await call(
      ...["run", "--detach", `--name=${SERVER}`, "--network=host"],
      ...["--read-only", "--tmpfs=/tmp", "--cap-drop=ALL", "--security-opt=no-new-privileges"],
      ...["--env", `DATABASE_URL=${url}`, "--env", `KHALA_PORT=${PORT}`, "--env=KHALA_HOST=127.0.0.1"],
      ...["--env", `KHALA_AUTH_SECRETS=k1:${randomBytes(32).toString("base64")}`, IMAGE],
    );
    const ready = await readiness();
    report("/readyz is ok", ready.startsWith("200"), ready);
    if (!ready.startsWith("200")) console.log((await run(engine!, ["logs", SERVER])).output);
    const touch = await run(engine!, ["exec", "--user=0", SERVER, "touch", "/khala/written"]);
    report("root filesystem is read-only", touch.code !== 0, touch.output.trim());
    await call("stop", "--time=40", SERVER);
    const code = (await call("inspect", "--format={{.State.ExitCode}}", SERVER)).trim();
    report("stops in order", code === "0", `exit code ${code}`);
  } finally {
    await run(engine!, ["rm", "--force", SERVER, POSTGRES]);
  }
}

/** Buildah has no containers that stay: the server itself is not started. */
async function tryWithBuildah(): Promise<void> {
  const container = (await call("from", IMAGE)).trim();
  try {
    const size = await call("run", "--user=0", container, "--", "du", "-sxb", "/");
    reportSize(Number(/^\d+/m.exec(size)?.[0]));
    reportUser(await call("run", container, "--", "id", "-u"));
    const entry = ["node", "--conditions=khala-source", "packages/cli/src/main.ts", "--version"];
    report("the command starts", true, (await call("run", container, "--", ...entry)).trim());
    console.log(
      "NOT CHECKED: /readyz and the read-only root filesystem, for which Docker or Podman is needed.",
    );
  } finally {
    await run("buildah", ["rm", container]);
  }
}

async function startPostgres(): Promise<string> {
  const password = randomBytes(16).toString("hex");
  await call(
    ...["run", "--detach", `--name=${POSTGRES}`, "--publish=127.0.0.1::5432"],
    ...[
      "--env",
      `POSTGRES_PASSWORD=${password}`,
      "--env=POSTGRES_USER=khala",
      "docker.io/library/postgres:18",
    ],
  );
  // "127.0.0.1:49153"
  const address = (await call("port", POSTGRES, "5432/tcp")).trim().split("\n")[0];
  const url = `postgres://khala:${password}@${address}/khala`;
  const deadline = Date.now() + READY_MS;
  const isUp = () => run(engine!, ["exec", POSTGRES, "pg_isready", "--host=127.0.0.1", "--username=khala"]);
  while ((await isUp()).code !== 0 && Date.now() < deadline) await pause();
  return url;
}

/** The last answer of /readyz, which is asked until it is ok or the time is over. */
async function readiness(): Promise<string> {
  let last = "no answer";
  for (const deadline = Date.now() + READY_MS; Date.now() < deadline; await pause()) {
    try {
      const response = await fetch(`http://127.0.0.1:${PORT}/readyz`, { signal: AbortSignal.timeout(5_000) });
      last = `${response.status} ${await response.text()}`;
      if (response.ok) break;
    } catch (error) {
      last = (error as Error).message;
    }
  }
  return last;
}

function pause(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, 500));
}
