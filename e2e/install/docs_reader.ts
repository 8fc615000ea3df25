import { type ChildProcess, spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { readFile, rm, writeFile } from "node:fs/promises";
import { delimiter, join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { bareEnv } from "@khala/test-support/processes/bare_env";
import pg from "pg";
import { expect } from "vitest";
import type { Block } from "../../scripts/doc_blocks.ts";
import { ROOT } from "../../scripts/run.ts";
import { collect, ended, printed, signalGroup } from "./docs_programs.ts";

/** Where programs of the docs are written, so that they find the repository's packages. */
export const CACHE = join(ROOT, `.cache/docs-${process.pid}`);
/** Set for everything that a document starts: a document that runs the tests would run itself. */
export const INSIDE = "KHALA_DOCS_TEST";
const AVAILABLE = [
  join(ROOT, "node_modules/.bin"),
  join(ROOT, "tools/check/node_modules/.bin"),
  process.env.PATH,
].join(delimiter);

/** A server that a document talks to. */
interface Server {
  readonly url: string;
  /** What it printed; production prints none. */
  readonly token: string;
  readonly dataDir: string;
  readonly child: ChildProcess;
}

/** Somebody who reads a document and tries what it shows: has a server, and a shell that remembers. */
export class Reader implements AsyncDisposable {
  readonly #folder: string;
  readonly #children = new Set<ChildProcess>();
  readonly #house: Reader | undefined;
  #server: Server | undefined;
  #servers = 0;

  /**
   * The signal ends what is running: a test that has timed out leaves nothing behind. A snippet that starts no server uses that
   * of the house.
   */
  constructor(folder: string, signal?: AbortSignal, house?: Reader) {
    this.#folder = folder;
    this.#house = house;
    signal?.addEventListener("abort", () => {
      for (const child of this.#children) signalGroup(child, "SIGKILL");
    });
  }

  /** Does what a block says; throws when it does not work. */
  async follow(block: Block): Promise<void> {
    const { language, options, code } = block;
    if (options["no-run"]) return expect(options.reason, "no-run needs a reason").toBeTruthy();
    if (options.file)
      return expect(await readFile(join(ROOT, options.file), "utf8")).toContain(code.trimEnd());
    if (language === "json") return void JSON.parse(code);
    if (options.serve) return this.#serve(code);
    const server = await this.running();
    const { url, token } = server;
    const here = code.replaceAll("127.0.0.1:4000", new URL(url).host);
    if (language === "sql") return runSql(server, here);
    if (language === "bash") return this.#finish(this.#bash(here, server), options.until);
    const file = join(CACHE, `${block.place.replaceAll(/\W/g, "_")}.${language}`);
    await writeFile(file, here.replaceAll('"./', '"../../'));
    const env = {
      KHALA_DATA_DIR: join(this.#folder, "program"),
      KHALA_PORT: "0",
      KHALA_URL: url,
      TOKEN: token,
    };
    await this.#finish(
      this.#spawn(process.execPath, ["--conditions=khala-source", file], this.#folder, env),
      options.until,
    );
  }

  /** The server of this document, or of the house; started when it is first needed. */
  async running(): Promise<Server> {
    if (!this.#server && this.#house) return this.#house.running();
    if (!this.#server) await this.#serve("npm start");
    return this.#server!;
  }

  async #serve(code: string): Promise<void> {
    if (this.#server) await this.#stop(this.#server.child, "SIGTERM");
    this.#server = undefined;
    const dataDir = join(this.#folder, `data-${++this.#servers}`);
    const child = this.#bash(code, { url: "", token: "", dataDir });
    // In production there is no token to be printed: the address ends the line of the log.
    const [, url, token = ""] = await printed(
      child,
      /ready at (http:[\w/.:]+)(?:"| [\s\S]*export TOKEN=(\S+))/,
    );
    this.#server = { url: url!, token, child, dataDir };
  }

  /** A shell that takes over what the one before it knew, and leaves what it knows. */
  #bash(code: string, { url, token, dataDir }: Omit<Server, "child">): ChildProcess {
    const memory = join(this.#folder, "memory.sh");
    const own = code.replaceAll(/npm (ci|test)\b( && )?/g, "");
    const before = `[ -e ${memory} ] && . ${memory}; set -euo pipefail -o allexport`;
    const script = `${before}\n${own}\n{ declare -px | grep -vE ' KHALA_(URL|DATA_DIR|PORT)='; declare -f; } > ${memory}`;
    const env = { KHALA_URL: url, KHALA_PORT: "0", TOKEN: token, KHALA_DATA_DIR: dataDir };
    return this.#spawn("bash", ["-c", script], ROOT, env);
  }

  #spawn(program: string, args: readonly string[], cwd: string, env: Record<string, string>): ChildProcess {
    const { CI = "" } = process.env;
    const child = spawn(program, args, {
      cwd,
      detached: true, // A group of its own, which can be stopped as a Ctrl-C would.
      stdio: ["ignore", "pipe", "pipe"],
      env: { ...bareEnv(), CI, PATH: AVAILABLE, NO_COLOR: "1", [INSIDE]: "1", ...env },
    });
    this.#children.add(child);
    return child;
  }

  async #finish(child: ChildProcess, until: string | undefined): Promise<void> {
    if (until) {
      await printed(child, new RegExp(RegExp.escape(until)));
      return this.#stop(child, "SIGINT");
    }
    const output = collect(child);
    expect(await ended(child), output()).toBe(0);
  }

  /** Asks a program and all that it started to stop, and waits until they have. */
  async #stop(child: ChildProcess, signal: NodeJS.Signals): Promise<void> {
    signalGroup(child, signal);
    const deadline = Date.now() + 20_000;
    while (signalGroup(child, 0) && Date.now() < deadline) await delay(20);
    this.#children.delete(child);
    if (signalGroup(child, "SIGKILL")) throw new Error(`It did not stop after ${signal}.`);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all([...this.#children].map((child) => this.#stop(child, "SIGTERM")));
    await rm(this.#folder, { recursive: true, force: true });
  }
}

async function runSql({ dataDir }: Server, code: string): Promise<void> {
  const client = new pg.Client(readFileSync(join(dataDir, "postgres/database_url"), "utf8").trim());
  await client.connect();
  try {
    await client.query("BEGIN");
    const planned = /^\s*(--.*\n\s*)*(select|with|insert|update|delete)\b[^;]*;?\s*$/i.test(code);
    await client.query(planned ? `EXPLAIN (GENERIC_PLAN) ${code}` : code);
  } finally {
    // Without a commit, what it did is undone.
    await client.end();
  }
}
