import { rolldown } from "rolldown";

/** One script for a page or a worker, from a program of packages/test-support/src/programs and its imports, as in the source. */
export async function bundleForBrowser(file: string, format: "iife" | "es" = "iife"): Promise<string> {
  const bundle = await rolldown({
    input: file,
    platform: "browser",
    resolve: { conditionNames: ["khala-source", "browser", "import", "module"] },
    logLevel: "warn",
  });
  try {
    const { output } = await bundle.generate({ format, codeSplitting: false });
    return output[0].code;
  } finally {
    await bundle.close();
  }
}
