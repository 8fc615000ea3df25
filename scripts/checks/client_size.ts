// What @khala/client/sync weighs in a browser, with all that it imports: a promise to the apps that embed it.
import { gzipSync } from "node:zlib";
import { rolldown } from "rolldown";
import { type Finished, ROOT } from "../run.ts";

const LIMIT_BYTES = 20 * 1024;

/** Bundles the sync client as an app's build would; fails above the limit. */
export async function checkClientSize(): Promise<Finished> {
  const bundle = await rolldown({
    input: `${ROOT}/packages/client/src/sync.ts`,
    platform: "browser",
    resolve: { conditionNames: ["khala-source", "browser", "import", "module"] },
    logLevel: "silent",
  });
  try {
    const { output } = await bundle.generate({ format: "esm", minify: true, codeSplitting: false });
    const { code } = output[0];
    const bytes = gzipSync(code, { level: 9 }).length;
    const text = `@khala/client/sync: ${kilobytes(bytes)} gzipped, ${kilobytes(Buffer.byteLength(code))} minified; at most ${kilobytes(LIMIT_BYTES)} gzipped.`;
    return { code: bytes > LIMIT_BYTES ? 1 : 0, output: text };
  } finally {
    await bundle.close();
  }
}

function kilobytes(bytes: number): string {
  return `${(bytes / 1024).toFixed(1)} KB`;
}

if (import.meta.main) {
  const { code, output } = await checkClientSize();
  console.log(output);
  process.exitCode = code;
}
