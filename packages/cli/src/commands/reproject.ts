import { reproject as rebuild } from "@khala/server/operations";
import { type OperatingOptions, operate, toJson } from "../operating.ts";
import { showProgress } from "../progress.ts";
import { print } from "../terminal.ts";

/** `khala reproject`: makes the documents of a topic anew from the log. */
export async function reproject(
  topic: string,
  options: OperatingOptions & { readonly restart?: boolean },
): Promise<void> {
  using progress = showProgress();
  const done = await operate(options, ({ app, databaseUrl, signal, config }) =>
    rebuild({
      app,
      topic,
      databaseUrl,
      signal,
      inline: config.KHALA_PAYLOAD_MODE === "inline",
      restart: options.restart ?? false,
      onProgress: ({ phase, position, head, documents, differing }) =>
        progress.tell(
          () =>
            phase === "folding"
              ? `folding: event ${position} of ${head}`
              : `comparing: ${documents} documents, ${differing} differ`,
          phase === "folding" && head > 0n ? Number(position) / Number(head) : undefined,
        ),
    }),
  );
  if (options.json) return print(toJson(done));
  print(`${topic}: ${done.documents} documents compared, ${done.differing} differed and were re-emitted.`);
}
