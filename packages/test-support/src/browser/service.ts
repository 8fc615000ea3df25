import { execFile } from "node:child_process";
import { promisify } from "node:util";
import type { Service } from "../services/service.ts";

const run = promisify(execFile);
const SHELL = "chromium-headless-shell";
/** The whole browser, for tests that kill it: the command of the shell is a script that waits for the browser it starts. */
export const WHOLE = ["chromium", "chromium-browser", "google-chrome"];

/**
 * Chromium: the binary that KHALA_TEST_CHROMIUM names, one from this machine, or, where CI=true or KHALA_TEST_INSTALL=1, from the
 * package manager. Nothing runs before a test file starts it. Its environment is EXECUTABLE. The headless shell comes first: a page
 * costs it little more than half of what the whole browser uses.
 */
export function chromium(names: readonly string[] = [SHELL, ...WHOLE]): Service {
  let executable: string | undefined;
  return {
    name: "chromium",

    async available() {
      const { KHALA_TEST_CHROMIUM: given, CI, KHALA_TEST_INSTALL } = process.env;
      executable = given || (await find(names));
      if (executable) return undefined;
      if (CI !== "true" && KHALA_TEST_INSTALL !== "1")
        return "there is no chromium or google-chrome. Install one, name a binary in KHALA_TEST_CHROMIUM, or set KHALA_TEST_INSTALL=1";
      const problem = await install(names);
      executable = await find(names);
      return executable ? undefined : problem;
    },

    start: async () => ({ env: { EXECUTABLE: executable! }, stop: async () => {} }),
  };
}

async function find(names: readonly string[]): Promise<string | undefined> {
  for (const name of names) {
    const path = await run("which", [name]).then(
      ({ stdout }) => stdout.trim(),
      () => "",
    );
    if (path) return path;
  }
  return undefined;
}

/** Returns the error, if there is one. */
async function install([first]: readonly string[]): Promise<string> {
  const options = { timeout: 300_000, env: { ...process.env, DEBIAN_FRONTEND: "noninteractive" } };
  const asRoot = process.getuid?.() === 0 ? [] : ["sudo", "-n"];
  const apt = async (...args: string[]) => {
    const [command, ...rest] = [...asRoot, "apt-get", ...args];
    await run(command!, rest, options);
  };
  const add = (name: string) => apt("install", "-y", "--no-install-recommends", name);
  try {
    await add(first!).catch(async () => {
      await apt("update");
      // Not every distribution has a package of the shell.
      await add(first!).catch(() => add("chromium"));
    });
    return "the package was installed, and has no chromium";
  } catch (error) {
    return `the package manager could not install it: ${(error as Error).message.split("\n").slice(0, 3).join(" ")}`;
  }
}
