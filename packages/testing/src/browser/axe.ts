import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import type { Page } from "playwright-core";

interface Finding {
  readonly id: string;
  readonly impact: string | null;
  readonly help: string;
  readonly nodes: readonly { readonly target: readonly unknown[]; readonly failureSummary?: string }[];
}

const source = readFile(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/** What axe finds on a page that keeps people out: serious and critical, each with where it is. */
export async function seriousFindings(page: Page): Promise<readonly string[]> {
  // What fades in has too little contrast until it is there.
  await page.evaluate(
    "Promise.all(document.getAnimations().filter((each) => each.effect.getComputedTiming().endTime < Infinity).map((each) => each.finished.catch(() => {})))",
  );
  // The page's own policy forbids scripts from elsewhere, so it is evaluated, not added.
  await page.evaluate(await source);
  const findings = await page.evaluate<readonly Finding[]>(
    "axe.run(document, { resultTypes: ['violations'] }).then((result) => result.violations)",
  );
  return findings
    .filter(({ impact }) => impact === "serious" || impact === "critical")
    .flatMap(({ id, help, nodes }) =>
      nodes.map(
        ({ target, failureSummary }) => `${id}: ${help} (${target.join(" ")}) ${failureSummary ?? ""}`,
      ),
    );
}
