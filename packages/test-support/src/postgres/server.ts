import { execFile } from "node:child_process";
import { randomUUID } from "node:crypto";
import { appendFile, chown, mkdir, mkdtemp, readdir, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { pino } from "pino";
import { isRunning } from "../../../server/src/database/data_folder.ts";
import { type Database, openDatabase } from "../../../server/src/database/database.ts";
import { type EmbeddedPostgres, startEmbeddedPostgres } from "../../../server/src/database/embedded.ts";
import { systemClock } from "../../../server/src/kit/clock.ts";
import { eventually } from "../kit/eventually.ts";
import { startTcpProxy, type TcpProxy } from "../processes/tcp_proxy.ts";
import { administer } from "./service.ts";

const run = promisify(execFile);
// Commits survive a crash of the server, not of the machine.
const SETTINGS = ["fsync=off", "full_page_writes=off", "wal_keep_size=64MB"];

/** A PostgreSQL of a test's own behind a proxy, to be stopped, crashed, copied, restored and failed over. */
export class PostgresServer implements AsyncDisposable {
  readonly #home: string;
  readonly proxy: TcpProxy;
  /** The address of the proxy, which stays the same. */
  readonly url: string;
  /** A pool on that address. */
  readonly database: Database;
  #dataDir: string;
  #server: EmbeddedPostgres | undefined;
  readonly #standbys: EmbeddedPostgres[] = [];
  #copies = 0;

  private constructor(home: string, dataDir: string, server: EmbeddedPostgres, proxy: TcpProxy) {
    this.#home = home;
    this.#dataDir = dataDir;
    this.#server = server;
    this.proxy = proxy;
    this.url = proxy.through(server.url);
    this.database = openDatabase({ url: this.url, poolSize: 2, log: pino({ level: "silent" }) });
  }

  /** Starts a new cluster, in a folder of its own unless one is given. */
  static async start(folder?: string): Promise<PostgresServer> {
    const home = folder ?? (await mkdtemp(join(tmpdir(), "khala-chaos-")));
    await mkdir(home, { recursive: true });
    // PostgreSQL runs as another user when we are root: it must be able to walk down here.
    await run("chmod", ["755", home]);
    const dataDir = join(home, "first");
    const server = await launch(dataDir);
    return new PostgresServer(home, dataDir, server, await startTcpProxy(targetOf(server)));
  }

  get running(): boolean {
    return this.#server !== undefined && isRunning(this.#server.pid);
  }

  /** Starts it again in its folder. */
  async start(): Promise<void> {
    this.#server = await launch(this.#dataDir);
    this.proxy.switchTo(targetOf(this.#server));
  }

  /** Stops it in order; connections are cut. */
  async stop(): Promise<void> {
    await this.#server?.stop();
  }

  /** Crashes it: it recovers at its next start. */
  async crash(): Promise<void> {
    const { pid } = this.#server!;
    process.kill(pid, "SIGQUIT");
    await eventually("PostgreSQL is gone", () => !isRunning(pid));
  }

  /** A copy of its folder, taken while it is stopped. */
  async backUp(): Promise<string> {
    await this.stop();
    const copy = await this.copy();
    await this.start();
    return copy;
  }

  /** A copy of its folder as it is. */
  async copy(): Promise<string> {
    const copy = this.#newFolder();
    await run("cp", ["-a", this.#dataDir, copy]);
    return copy;
  }

  /** Replaces the folder with a copy, and starts from it. */
  async restore(copy: string): Promise<void> {
    await this.stop();
    await rm(this.#dataDir, { recursive: true });
    await run("cp", ["-a", copy, this.#dataDir]);
    await this.start();
  }

  /** The same, but files that are alike stay as they are, as with rsync or the snapshot of a volume. */
  async rewind(copy: string): Promise<void> {
    await this.stop();
    const cluster = join(this.#dataDir, "pg");
    for (const name of await readdir(cluster))
      if (name !== "PG_VERSION") await rm(join(cluster, name), { recursive: true });
    await run("cp", ["-a", "--no-clobber", `${join(copy, "pg")}/.`, cluster]);
    await this.start();
  }

  /** A base backup: a copy of its folder, taken while it runs. */
  async baseBackup(): Promise<string> {
    const copy = this.#newFolder();
    const client = await this.database.connect();
    try {
      await client.query("SELECT pg_backup_start('copy', fast => true)");
      await run("cp", ["-a", this.#dataDir, copy]);
      const { rows } = await client.query("SELECT labelfile FROM pg_backup_stop(wait_for_archive => false)");
      const cluster = join(copy, "pg");
      await rm(join(cluster, "postmaster.pid"));
      await writeOwned(cluster, "backup_label", rows[0].labelfile);
    } finally {
      await client.end();
    }
    return copy;
  }

  /** Replaces the folder with a base backup, and replays the log up to a restore point. */
  async recover(copy: string, restorePoint: string): Promise<void> {
    await this.stop();
    const archive = this.#newFolder();
    await run("cp", ["-a", join(this.#dataDir, "pg", "pg_wal"), archive]);
    // As an archive would be: the backup has only its beginning.
    const log = join(copy, "pg", "pg_wal");
    for (const name of await readdir(log)) if (/^[0-9A-F]{24}$/.test(name)) await rm(join(log, name));
    await writeOwned(join(copy, "pg"), "recovery.signal", "");
    const settings = [`restore_command = 'cp ${archive}/%f %p'`, `recovery_target_name = '${restorePoint}'`];
    const lines = [...settings, "recovery_target_action = 'promote'", ""].join("\n");
    await appendFile(join(copy, "pg", "postgresql.auto.conf"), lines);
    await this.restore(copy);
    await eventually("it is recovered", async () => {
      const [row] = await this.database.query({ text: "SELECT pg_is_in_recovery() AS recovering" });
      return row!.recovering === false;
    });
  }

  /** Ends the connections that the pool of this test left open. */
  async endSessions(): Promise<void> {
    await administer(
      this.#server!.url,
      `SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
        WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()`,
    );
  }

  /** Starts a standby that follows it. */
  async addStandby(): Promise<Standby> {
    const primary = this.#server!;
    const dataDir = await this.baseBackup();
    await prepareStandby(join(dataDir, "pg"), primary);
    const server = await launch(dataDir);
    this.#standbys.push(server);
    const followed = async () =>
      (await this.database.query({ text: "SELECT FROM pg_stat_replication WHERE state = 'streaming'" }))
        .length;
    await eventually("the standby follows", async () => (await followed()) > 0);
    return {
      async awaitCommits() {
        await administer(primary.url, "ALTER SYSTEM SET synchronous_standby_names = '*'");
        await administer(primary.url, "ALTER SYSTEM SET synchronous_commit = 'remote_apply'");
        await administer(primary.url, "SELECT pg_reload_conf()");
      },
      async detach() {
        await administer(server.url, "ALTER SYSTEM SET primary_conninfo = ''");
        await administer(server.url, "SELECT pg_reload_conf()");
        await eventually("the standby follows no more", async () => (await followed()) === 0);
      },
      reach: () => this.proxy.switchTo(targetOf(server)),
      promote: async () => {
        await administer(server.url, "SELECT pg_promote()");
        this.#server = server;
        this.#dataDir = dataDir;
        this.proxy.switchTo(targetOf(server));
      },
    };
  }

  #newFolder(): string {
    return join(this.#home, `copy${++this.#copies}`);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.database.close();
    await this.stop();
    for (const standby of this.#standbys) await standby.stop();
    await this.proxy[Symbol.asyncDispose]();
    await rm(this.#home, { recursive: true, force: true });
  }
}

/** A server that follows another one. */
export interface Standby {
  /** Makes commits wait until the standby has applied them. */
  awaitCommits(): Promise<void>;
  /** Pauses its replay. */
  detach(): Promise<void>;
  /** Lets new connections through the proxy reach it while it is still read-only. */
  reach(): void;
  /** Promotes it: new connections through the proxy reach it. */
  promote(): Promise<void>;
}

/** Turns the copy of a running primary into a standby of it. */
async function prepareStandby(cluster: string, primary: EmbeddedPostgres): Promise<void> {
  const { hostname, port, password } = new URL(primary.url);
  const follow = `host=${hostname} port=${port} user=postgres password=${decodeURIComponent(password)}`;
  await appendFile(join(cluster, "postgresql.auto.conf"), `primary_conninfo = '${follow}'\n`);
  await writeOwned(cluster, "standby.signal", "");
}

/** Writes a file that belongs to the owner of the cluster. */
async function writeOwned(cluster: string, name: string, text: string): Promise<void> {
  const { uid, gid } = await stat(cluster);
  await writeFile(join(cluster, name), text);
  await chown(join(cluster, name), uid, gid);
}

function launch(dataDir: string, settings: readonly string[] = []): Promise<EmbeddedPostgres> {
  return startEmbeddedPostgres({
    dataDir,
    clock: systemClock,
    newPassword: randomUUID,
    settings: [...SETTINGS, ...settings],
  });
}

function targetOf({ url }: EmbeddedPostgres): { host: string; port: number } {
  const { hostname, port } = new URL(url);
  return { host: hostname, port: Number(port) };
}
