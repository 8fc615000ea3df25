import { execFile } from "node:child_process";
import { promisify } from "node:util";
import type { Service } from "../services/service.ts";

const run = promisify(execFile);
const NAMES = ["chromium", "chromium-browser", "google-chrome"];

/**
 * Chromium: the binary that KHALA_TEST_CHROMIUM names, one from this machine, or, where CI=true or KHALA_TEST_INSTALL=1, from the
 * package manager. Nothing runs before a test file starts it. Its environment is EXECUTABLE.
 */
export function chromium(): Service {
  let executable: string | undefined;
  return {
    name: "chromium",

    async available() {
      const { KHALA_TEST_CHROMIUM: given, CI, KHALA_TEST_INSTALL } = process.env;
      executable = given || (await find());
      if (executable) return undefined;
      if (CI !== "true" && KHALA_TEST_INSTALL !== "1")
        return "there is no chromium or google-chrome. Install one, name a binary in KHALA_TEST_CHROMIUM, or set KHALA_TEST_INSTALL=1";
      const problem = await install();
      executable = await find();
      return executable ? undefined : problem;
    },

    start: async () => ({ env: { EXECUTABLE: executable! }, stop: async () => {} }),
  };
}

async function find(): Promise<string | undefined> {
  for (const name of NAMES) {
    const path = await run("which", [name]).then(
      ({ stdout }) => stdout.trim(),
      () => "",
    );
    if (path) return path;
  }
  return undefined;
}

/** Returns the error, if there is one. */
async function install(): Promise<string> {
  const options = { timeout: 300_000, env: { ...process.env, DEBIAN_FRONTEND: "noninteractive" } };
  const asRoot = process.getuid?.() === 0 ? [] : ["sudo", "-n"];
  const apt = async (...args: string[]) => {
    const [command, ...rest] = [...asRoot, "apt-get", ...args];
    await run(command!, rest, options);
  };
  try {
    await apt("install", "-y", "--no-install-recommends", "chromium").catch(async () => {
      await apt("update");
      await apt("install", "-y", "--no-install-recommends", "chromium");
    });
    return "the package was installed, and has no chromium";
  } catch (error) {
    return `the package manager could not install it: ${(error as Error).message.split("\n").slice(0, 3).join(" ")}`;
  }
}
