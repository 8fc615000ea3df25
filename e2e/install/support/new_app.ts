import { type ChildProcess, spawn } from "node:child_process";
import { mkdir, mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { delimiter, dirname, join } from "node:path";
import { stripVTControlCharacters } from "node:util";
import { bareEnv } from "@khala/test-support/processes/bare_env";
import type { Page } from "playwright-core";
import { type Block, blocksOf } from "../../../scripts/doc_blocks.ts";
import { ROOT, run } from "../../../scripts/run.ts";
import { collect, ended, printed, signalGroup } from "../docs_programs.ts";
import { packedPackages } from "./packed.ts";

/** How this machine reaches npm's registry, which its installs need. */
const NETWORK = ["TMPDIR", "NODE_EXTRA_CA_CERTS", "HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy"];

/** An app that `npm create khala` has made in an empty folder, installed from packed packages. Disposing of it ends and removes it. */
export class NewApp implements AsyncDisposable {
  readonly folder: string;
  /** What `npm install` printed. */
  installed = "";
  readonly #started: ChildProcess[] = [];

  private constructor(folder: string) {
    this.folder = folder;
  }

  static async create(template: "vite" | "next"): Promise<NewApp> {
    const packages = await packedPackages();
    const creator = (await readdir(packages)).find((file) => file.startsWith("create-khala"))!;
    const place = await mkdtemp(join(tmpdir(), "khala-create-"));
    const app = new NewApp(join(place, "my-app"));
    // What `npm create khala` does, with the packed package in the place of the registry's.
    const create = ["exec", "--yes", "--package", join(packages, creator), "--", "create-khala", "my-app"];
    await app.must("npm", [...create, "--template", template, "--packages", packages], {}, place);
    app.installed = await app.must("npm", ["install", "--no-audit", "--no-fund", "--prefer-offline"]);
    return app;
  }

  /** Runs a program in the app's folder that has to succeed; returns what it printed. */
  async must(command: string, args: readonly string[], env = {}, cwd = this.folder): Promise<string> {
    const { code, output } = await run(command, args, cwd, { env: { ...ownEnv(), ...env } });
    if (code !== 0) throw new Error(`${command} ${args.join(" ")} failed:\n${output}`);
    return output;
  }

  /** Starts a program in the app's folder, and resolves once it has printed all of this. */
  async start(args: readonly string[], env: Record<string, string>, wanted: readonly RegExp[]) {
    const child = spawn("npm", args, {
      cwd: this.folder,
      detached: true,
      env: { ...ownEnv(), ...env, NO_COLOR: "1", FORCE_COLOR: "0" },
      stdio: ["ignore", "pipe", "pipe"],
    });
    this.#started.push(child);
    const output = collect(child);
    for (const each of wanted) if (!each.test(output())) await printed(child, each);
    return { child, output: () => stripVTControlCharacters(output()) };
  }

  /** Ends a program as Ctrl-C does. */
  async stop(child: ChildProcess): Promise<void> {
    signalGroup(child, "SIGINT");
    await ended(child);
  }

  /** Writes the files of the app that a document shows, and returns its commands. */
  async follow(document: string): Promise<Block[]> {
    const blocks = blocksOf(document).filter(({ options }) => options.app);
    for (const { language, options, code } of blocks) {
      if (language === "bash") continue;
      const file = join(this.folder, options.app!);
      await mkdir(dirname(file), { recursive: true });
      await writeFile(file, code);
    }
    return blocks.filter(({ language }) => language === "bash");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const child of this.#started) {
      signalGroup(child, "SIGINT");
      await ended(child);
    }
    await rm(dirname(this.folder), { recursive: true, force: true, maxRetries: 5 });
  }
}

/** Without what npm and this repository's test run have put into the environment. */
function ownEnv(): Record<string, string> {
  const path = process.env.PATH!.split(delimiter).filter((part) => !part.startsWith(ROOT));
  // The Node of the tests: a user has a supported one.
  path.unshift(dirname(process.execPath));
  return { ...bareEnv(NETWORK), PATH: path.join(delimiter), NEXT_TELEMETRY_DISABLED: "1" };
}

/** Uses the page's list, chat and board in one tab, and sees list and board change in another. */
export async function useThePage(one: Page, other: Page, answer: string): Promise<void> {
  const send = async (label: string, text: string) => {
    await one.getByLabel(label, { exact: true }).fill(text);
    await one.getByLabel(label, { exact: true }).press("Enter");
  };
  await send("New task", "Buy milk");
  await other.getByLabel("Buy milk", { exact: true }).click();
  await one.locator("label:has(:checked)").filter({ hasText: "Buy milk" }).waitFor();
  await send("Message", "hello");
  await one.locator("[data-role=assistant]").filter({ hasText: answer }).waitFor();
  await send("Goal", "Ship it");
  await other.getByRole("heading", { name: "Ship it" }).waitFor();
}
