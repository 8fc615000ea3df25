import { execFile } from "node:child_process";
import { promisify } from "node:util";

const run = promisify(execFile);

/** Whether tests may install missing programs. */
export function mayInstall(): boolean {
  const { CI, KHALA_TEST_INSTALL } = process.env;
  return CI === "true" || KHALA_TEST_INSTALL === "1";
}

/** Installs a Debian package without starting the system's own service; returns the error if its server is still not found. */
export async function installPackage(name: string): Promise<string> {
  const options = {
    timeout: 180_000,
    env: { ...process.env, DEBIAN_FRONTEND: "noninteractive", RUNLEVEL: "1" },
  };
  const asRoot = process.getuid?.() === 0 ? [] : ["sudo", "-n"];
  const apt = async (...args: string[]) => {
    const [command, ...rest] = [...asRoot, "apt-get", ...args];
    await run(command!, rest, options);
  };
  const install = () => apt("install", "-y", "--no-install-recommends", name);
  try {
    await install().catch(async () => {
      await apt("update");
      await install();
    });
    return `the package ${name} was installed, and has no server`;
  } catch (error) {
    return `the package manager could not install it: ${(error as Error).message.split("\n").slice(0, 3).join(" ")}`;
  }
}
