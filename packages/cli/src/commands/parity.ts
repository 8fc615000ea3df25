import { parity as compare, parityLines } from "@khala/server/operations";
import { EXIT, Failure } from "../failure.ts";
import { type OperatingOptions, operate, toJson } from "../operating.ts";
import { showProgress } from "../progress.ts";
import { print } from "../terminal.ts";

/** `khala parity`: compares what the second sink holds with the read models. */
export async function parity(topics: readonly string[], options: OperatingOptions): Promise<void> {
  using progress = showProgress();
  const report = await operate(options, ({ app, databaseUrl, signal, config }) => {
    const { CONVEX_URL: url, CONVEX_MUTATION: mutation, CONVEX_QUERY: query, CONVEX_SECRET: secret } = config;
    if (!url) throw new Failure("There is no second sink to compare with: set CONVEX_URL.", EXIT.usage);
    return compare({
      app,
      databaseUrl,
      signal,
      convex: { url, mutation, query, secret },
      ...(topics.length > 0 && { topics }),
      onProgress: ({ topic, documents }) => progress.tell(() => `${topic}: ${documents} documents compared`),
    });
  });
  if (options.json) print(toJson(report));
  else for (const line of parityLines(report)) print(line);
  process.exitCode = report.equal ? EXIT.ok : EXIT.found;
}
