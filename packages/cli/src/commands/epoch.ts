import { rotateEpoch } from "@khala/server/operations";
import { EXIT, Failure } from "../failure.ts";
import { type OperatingOptions, operate } from "../operating.ts";
import { print } from "../terminal.ts";

/** `khala epoch rotate`: makes every cursor stale, after a restore that left no mark. */
export async function rotate(options: OperatingOptions & { readonly yes?: boolean }): Promise<void> {
  if (!options.yes) {
    const what = "Every cursor becomes stale, and every client lists its topics anew, all at once.";
    throw new Failure(`${what} Add --yes to do it.`, EXIT.usage);
  }
  const epoch = await operate(options, ({ databaseUrl, signal }) => rotateEpoch({ databaseUrl, signal }));
  print(options.json ? JSON.stringify({ epoch }) : `The epoch is now ${epoch}.`);
}
