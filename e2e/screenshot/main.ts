// npm run screenshot [-- <path of a Chromium>]: the pictures of the README, from the demo as it is now, in light and dark.
import { spawn } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { chromium, type Page } from "playwright-core";

const ROOT = join(import.meta.dirname, "../..");
const SIZE = { width: 1280, height: 800 };
const MESSAGE = "Write a note about otters";
const PICTURES = { light: "docs/assets/dashboard.png", dark: "docs/assets/dashboard-dark.png" } as const;
/** Charts begin with what the server remembers: a few samples, ten seconds apart. */
const WARM_UP_MS = 45_000;

const folder = await mkdtemp(join(tmpdir(), "khala-screenshot-"));
const main = join(ROOT, "packages/cli/src/main.ts");
const options = ["dev", "--port", "0", "--data-dir", folder, "--log-level", "error"];
const server = spawn(process.execPath, ["--conditions=khala-source", main, ...options], {
  stdio: ["ignore", "pipe", "inherit"],
});
const ended = new Promise((resolve) => server.once("exit", resolve));
try {
  const url = await addressOf();
  const browser = await chromium.launch({
    executablePath: process.argv[2] ?? "/usr/bin/chromium-headless-shell",
    chromiumSandbox: process.getuid?.() !== 0,
    args: ["--disable-dev-shm-usage"],
  });
  const page = await browser.newPage({ viewport: SIZE, deviceScaleFactor: 2, reducedMotion: "reduce" });
  await page.goto(url);
  await show(page);
  for (const [colorScheme, picture] of Object.entries(PICTURES)) {
    await page.emulateMedia({ colorScheme: colorScheme as keyof typeof PICTURES });
    await page.locator(`html[data-theme=${colorScheme}]`).waitFor();
    await page.screenshot({ path: join(ROOT, picture) });
  }
  await browser.close();
} finally {
  server.kill("SIGTERM");
  await ended;
  await rm(folder, { recursive: true, force: true });
}

/** The demo at work: a message that has become an article. */
async function show(page: Page): Promise<void> {
  await page.locator(".pill[data-state=live]").waitFor();
  await page.waitForTimeout(WARM_UP_MS);
  await page.getByLabel("Message to the demo assistant").fill(MESSAGE);
  await page.keyboard.press("Enter");
  for (const step of ["article", "conversation"])
    await page.locator(`[data-step=${step}][data-state=ok]`).waitFor({ timeout: 60_000 });
}

/** The address that the server prints. */
async function addressOf(): Promise<string> {
  for await (const line of createInterface(server.stdout)) {
    const found = /http:\/\/127\.0\.0\.1:\d+/.exec(line);
    if (found) {
      server.stdout.resume();
      return found[0];
    }
  }
  throw new Error("The server ended before it was ready.");
}
