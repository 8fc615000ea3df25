import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import { chromium } from "playwright-core";
import { eventually } from "../kit/eventually.ts";
import { chromiumExecutable, type TestContext, testContext } from "./chromium.ts";

/** A browser with a profile on disk, which can be ended as a crash of the machine would end it. */
export interface ChromiumProcess extends AsyncDisposable {
  readonly context: TestContext;
  /** Closes it in order, as a person who closes the window does. */
  quit(): Promise<void>;
  /** Kills it with SIGKILL: it finishes nothing. */
  kill(): Promise<void>;
}

/** Starts a browser on a profile. Disposing of it kills it. */
export async function startChromiumProcess(profile: string): Promise<ChromiumProcess> {
  const portFile = join(profile, "DevToolsActivePort");
  await rm(portFile, { force: true });
  const root = process.getuid?.() === 0 ? ["--no-sandbox"] : [];
  const child = spawn(
    chromiumExecutable(),
    [
      "--headless=new",
      "--remote-debugging-port=0",
      `--user-data-dir=${profile}`,
      "--no-first-run",
      "--disable-dev-shm-usage",
      ...root,
      "about:blank",
    ],
    { stdio: "ignore" },
  );
  const kill = async () => {
    child.kill("SIGKILL");
    await gone(child);
  };
  try {
    const port = await eventually("the browser is ready", async () => {
      const text = await readFile(portFile, "utf8").catch(() => "");
      return Number(text.split("\n")[0]);
    });
    const browser = await chromium.connectOverCDP(`http://127.0.0.1:${port}`);
    return {
      context: testContext(browser.contexts()[0]!),
      async quit() {
        const session = await browser.newBrowserCDPSession();
        // It may be gone before it answers.
        await session.send("Browser.close").catch(() => {});
        await gone(child);
      },
      kill,
      [Symbol.asyncDispose]: kill,
    };
  } catch (error) {
    await kill();
    throw error;
  }
}

async function gone(child: ChildProcess): Promise<void> {
  if (child.exitCode === null && child.signalCode === null) await once(child, "exit");
}
