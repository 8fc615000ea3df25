import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { BrowserContextOptions, Page } from "playwright-core";
import { testDatabase } from "../postgres/test_database.ts";
import { startKhala } from "../processes/processes.ts";
import { startChromium, type TestContext } from "./chromium.ts";
import { ensureDashboard } from "./dashboard_build.ts";

/** The demo of `npm start`, and a browser. */
export interface Demo extends AsyncDisposable {
  readonly url: string;
  /** A new browser context. */
  visitor(options?: BrowserContextOptions): Promise<TestContext>;
  /** A development token. */
  token(scopes: readonly string[], sub?: string): Promise<string>;
}

/** Starts the demo, with the page that was built last: `npm run build -w @khala/dashboard`. */
export async function startDemo(settings: Readonly<Record<string, string>> = {}): Promise<Demo> {
  await ensureDashboard();
  await using stack = new AsyncDisposableStack();
  const database = stack.use(await testDatabase());
  const folder = await mkdtemp(join(tmpdir(), "khala-demo-"));
  stack.defer(() => rm(folder, { recursive: true, force: true }));
  const env = { DATABASE_URL: database.url, KHALA_DATA_DIR: folder, ...settings };
  const khala = stack.use(await startKhala({ command: "dev", env }));
  const browser = stack.use(await startChromium());
  const all = stack.move();
  return {
    url: khala.url,
    visitor: (options) => browser.context(options),
    async token(scopes, sub = "dev") {
      const response = await fetch(`${khala.url}/api/sync/token`, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify({ sub, org_id: "demo", scopes }),
      });
      const { token } = (await response.json()) as { token: string };
      return token;
    },
    [Symbol.asyncDispose]: () => all.disposeAsync(),
  };
}

/** Waits until the page is signed in and connected. */
export async function live(page: Page): Promise<Page> {
  await page.locator(".pill[data-state=live]").waitFor();
  return page;
}

/** Signs the visitor in with a pasted token, before any page is open. */
export async function signIn({ browser }: TestContext, token: string): Promise<void> {
  await browser.addInitScript({
    content: `if (!sessionStorage.getItem("seen")) { sessionStorage.setItem("seen", "1"); sessionStorage.setItem("khala.token", ${JSON.stringify(token)}); }`,
  });
}

/** By how many pixels the page is wider than its window. */
export function overflow(page: Page): Promise<number> {
  return page.evaluate<number>("document.documentElement.scrollWidth - window.innerWidth");
}

/** The theme that the page shows. */
export function themeOf(page: Page): Promise<string> {
  return page.evaluate<string>("document.documentElement.dataset.theme");
}
