import { type BrowserContext, type BrowserContextOptions, chromium, type Page } from "playwright-core";
import { inject } from "vitest";

/** Whether this run has a Chromium: `describe.skipIf(!chromiumHere())`. */
export function chromiumHere(): boolean {
  return inject("services")?.chromium !== undefined;
}

/** The binary that tests start. */
export function chromiumExecutable(): string {
  const path = inject("services")?.chromium?.EXECUTABLE;
  if (!path) throw new Error("There is no Chromium in this run. Only files in e2e/ get one.");
  return path;
}

/** A browser for the tests of a file. Disposing of it closes everything in it. */
export interface TestBrowser extends AsyncDisposable {
  /** A browser context of a test's own, without anything that others stored. */
  context(options?: BrowserContextOptions): Promise<TestContext>;
}

/** A context of a test, closed at its end: `await using`. */
export interface TestContext extends AsyncDisposable {
  readonly browser: BrowserContext;
  /** Errors that pages wrote to the console, and uncaught errors; a test expects none. */
  readonly problems: readonly string[];
  /** A new page, which then shows the address, if one is given. */
  open(url?: string): Promise<Page>;
  /**
   * Answers this address, and no other, with a page that runs the script: no server is asked. To the browser such a page comes from
   * nowhere, and may not open sockets to this machine: a page that does needs a server, and `inject`.
   */
  serve(url: string, script: string): Promise<void>;
  /** Runs the script in every page, before its own; what is no page has no icon either. */
  inject(script: string): Promise<void>;
}

/** Starts a browser without a window. As root it needs to run without its sandbox, as in a container. */
export async function startChromium(): Promise<TestBrowser> {
  const browser = await chromium.launch({
    executablePath: chromiumExecutable(),
    chromiumSandbox: process.getuid?.() !== 0,
    // The shared memory of a container is often too small for it.
    args: ["--disable-dev-shm-usage"],
  });
  return {
    context: async (options = {}) => testContext(await browser.newContext(options)),
    [Symbol.asyncDispose]: () => browser.close(),
  };
}

/** The part of a context that tests use, with the problems of its pages collected. */
export function testContext(context: BrowserContext): TestContext {
  const problems: string[] = [];
  // A busy machine may take its time.
  context.setDefaultTimeout(60_000);
  context.on("page", (page) => {
    page.on("console", (message) => {
      if (message.type() === "error") problems.push(`console: ${message.text()} (${message.location().url})`);
    });
    page.on("pageerror", (error) => problems.push(`uncaught: ${error.stack ?? error.message}`));
    page.on("crash", () => problems.push(`crashed: ${page.url()}`));
  });
  return {
    browser: context,
    problems,
    async open(url) {
      const page = await context.newPage();
      if (url) await page.goto(url);
      return page;
    },
    async serve(url, script) {
      const body = `<!doctype html><title>test</title><link rel="icon" href="data:,"><script type="module">${script.replaceAll("</script", "<\\/script")}</script>`;
      await context.route(url, (route) => route.fulfill({ contentType: "text/html; charset=utf-8", body }));
    },
    async inject(content) {
      await context.addInitScript({ content });
      await context.route("**/favicon.ico", (route) => route.fulfill({ status: 204 }));
    },
    async [Symbol.asyncDispose]() {
      // A test may end while a request is being answered: nothing waits for it, and its failure is ignored.
      const routed = [context, ...context.pages()];
      await Promise.allSettled(routed.map((each) => each.unrouteAll({ behavior: "ignoreErrors" })));
      await context.close();
    },
  };
}
