import { chromiumHere, startChromium, type TestBrowser } from "@khala/test-support/browser/chromium";
import { freePort } from "@khala/test-support/processes/ports";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { NewApp, useThePage } from "./support/new_app.ts";
import { packedPackages } from "./support/packed.ts";

const MINUTES = 60_000;

// As a new user: an empty folder outside of this repository, packed packages, npm, a browser.
describe.skipIf(!chromiumHere())("an app of npm create khala", () => {
  let browser: TestBrowser;
  beforeAll(async () => {
    await packedPackages();
    browser = await startChromium();
  }, 5 * MINUTES);
  afterAll(() => browser?.[Symbol.asyncDispose]());

  test("following Getting started makes a page whose list, chat, board and own model are live", {
    timeout: 8 * MINUTES,
  }, async () => {
    await using app = await NewApp.create("vite");
    expect(app.installed).not.toContain("install-scripts");
    await app.must("npm", ["test"]);
    await app.must("npm", ["run", "check"]);

    const commands = await app.follow("docs/GETTING_STARTED.md");
    const port = String(await freePort());
    const env = { KHALA_PORT: port, KHALA_URL: `http://127.0.0.1:${port}` };
    const dev = await app.start(["run", "dev"], env, [/Khala is ready/, /Local: /]);
    const devUrl = /Local: +(http:\S+)/.exec(dev.output())![1]!;
    expect(await (await fetch(devUrl)).text()).toContain("/page/main.tsx");

    for (const { code } of commands) await app.must("bash", ["-ec", code], env);
    const preview = await app.start(["run", "preview", "--", "--port", String(await freePort())], env, [
      /Local: /,
    ]);
    const url = /Local: +(http:\S+)/.exec(preview.output())![1]!;
    await using first = await browser.context();
    await using second = await browser.context();
    const [one, other] = [await first.open(url), await second.open(url)];
    await one.getByText("It works").waitFor();
    await useThePage(one, other, "I heard: hello");
    expect([...first.problems, ...second.problems]).toEqual([]);
    await app.stop(preview.child);
    await app.stop(dev.child);
  });

  test("with Next.js it builds, starts, and is live", { timeout: 8 * MINUTES }, async () => {
    await using app = await NewApp.create("next");
    expect(app.installed).not.toContain("install-scripts");
    const port = String(await freePort());
    const env = { KHALA_PORT: port, KHALA_URL: `http://127.0.0.1:${port}` };
    await app.must("npm", ["run", "build"], { NEXT_PUBLIC_KHALA_URL: env.KHALA_URL });
    await app.must("npm", ["run", "check"]);
    const pagePort = String(await freePort());
    const khala = await app.start(["run", "dev:khala"], env, [/Khala is ready/]);
    const next = await app.start(["start", "--", "--port", pagePort], env, [/Ready in/]);
    const url = `http://localhost:${pagePort}`;
    await using first = await browser.context();
    await using second = await browser.context();
    await useThePage(await first.open(url), await second.open(url), 'You said "hello"');
    expect([...first.problems, ...second.problems]).toEqual([]);
    await app.stop(next.child);
    await app.stop(khala.child);
  });
});
