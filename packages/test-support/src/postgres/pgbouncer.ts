import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { chmod, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { unprivilegedUser } from "../../../server/src/database/embedded.ts";
import { eventually } from "../kit/eventually.ts";
import { freePort } from "../processes/ports.ts";
import { installPackage, mayInstall } from "../services/install_package.ts";
import type { Service } from "../services/service.ts";

const run = promisify(execFile);

/**
 * The program of PgBouncer, which tests start in front of a server: the one that KHALA_TEST_PGBOUNCER names, one from this machine, or, where CI=true or
 * KHALA_TEST_INSTALL=1, from the package manager. Its environment is COMMAND.
 */
export function pgbouncer(): Service {
  let command: string | undefined;
  return {
    name: "pgbouncer",

    async available() {
      command = await findPgBouncer();
      if (command) return undefined;
      if (!mayInstall())
        return "there is no pgbouncer. Install it, name the program in KHALA_TEST_PGBOUNCER, or set KHALA_TEST_INSTALL=1";
      const problem = await installPackage("pgbouncer");
      command = await findPgBouncer();
      return command ? undefined : problem;
    },

    start: async () => ({ env: { COMMAND: command! }, stop: async () => {} }),
  };
}

async function findPgBouncer(): Promise<string | undefined> {
  // Debian installs it in a folder that only root's PATH contains.
  for (const command of [process.env.KHALA_TEST_PGBOUNCER, "pgbouncer", "/usr/sbin/pgbouncer"]) {
    const works = command && (await run(command, ["--version"]).catch(() => undefined));
    if (works) return command;
  }
  return undefined;
}

/** A running pooler. */
export interface PgBouncer extends AsyncDisposable {
  /** The given URL, through the pooler. */
  readonly url: string;
}

/** Starts one in front of the server of a URL, for the role of that URL. `settings` are those of its section `[pgbouncer]`. */
export async function startPgBouncer(
  command: string,
  target: string,
  settings: Readonly<Record<string, string | number>>,
): Promise<PgBouncer> {
  const url = new URL(target);
  const port = await freePort();
  const home = await mkdtemp(join(tmpdir(), "khala-pgbouncer-"));
  const [users, config] = [join(home, "users"), join(home, "pgbouncer.ini")];
  await writeFile(users, `"${url.username}" "${decodeURIComponent(url.password)}"\n`);
  const all = {
    listen_addr: "127.0.0.1",
    listen_port: port,
    unix_socket_dir: "",
    auth_type: "scram-sha-256",
    auth_file: users,
    ...settings,
  };
  const lines = Object.entries(all).map(([name, value]) => `${name} = ${value}`);
  await writeFile(
    config,
    `[databases]\n* = host=${url.hostname} port=${url.port}\n[pgbouncer]\n${lines.join("\n")}\n`,
  );
  // It refuses to run as root.
  const user = unprivilegedUser();
  await chmod(home, 0o755);
  const child = spawn(command, [config], { cwd: "/", stdio: ["ignore", "ignore", "pipe"], ...user });
  let output = "";
  child.stderr.setEncoding("utf8").on("data", (chunk: string) => {
    output = `${output}${chunk}`.slice(-4_000);
  });
  const exited = once(child, "exit");
  const abandon = () => child.kill("SIGKILL");
  process.once("exit", abandon);
  const gone = () => child.exitCode !== null || child.signalCode !== null;
  await eventually("PgBouncer accepts connections", () => {
    if (gone()) throw new Error(`PgBouncer did not start:\n${output}`);
    return output.includes("listening on");
  });
  url.port = String(port);
  url.hostname = "127.0.0.1";
  return {
    url: url.toString(),
    async [Symbol.asyncDispose]() {
      process.off("exit", abandon);
      if (!gone()) child.kill("SIGTERM");
      await exited;
      await rm(home, { recursive: true, force: true });
    },
  };
}
