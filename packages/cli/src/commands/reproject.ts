import { reproject as rebuild } from "@khala/server/operations";
import { type OperatingOptions, operate, progressNotes, toJson } from "../operating.ts";
import { print } from "../terminal.ts";

/** `khala reproject`: makes the documents of a topic anew from the log. */
export async function reproject(
  topic: string,
  options: OperatingOptions & { readonly restart?: boolean },
): Promise<void> {
  const progress = progressNotes();
  const done = await operate(options, ({ app, databaseUrl, signal, config }) =>
    rebuild({
      app,
      topic,
      databaseUrl,
      signal,
      inline: config.KHALA_PAYLOAD_MODE === "inline",
      restart: options.restart ?? false,
      onProgress: ({ phase, position, head, documents, differing }) =>
        progress(() =>
          phase === "folding"
            ? `folding: event ${position} of ${head}`
            : `comparing: ${documents} documents, ${differing} differ`,
        ),
    }),
  );
  if (options.json) return print(toJson(done));
  print(`${topic}: ${done.documents} documents compared, ${done.differing} differed and were re-emitted.`);
}
