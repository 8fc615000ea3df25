import { relative } from "node:path";
import { createApp, NotPossible, type Template } from "create-khala";
import { EXIT, Failure } from "../failure.ts";
import { paint, print } from "../terminal/terminal.ts";

export interface InitOptions {
  readonly packages?: string;
  readonly template: Template;
  readonly json?: boolean;
}

/** `khala init`: creates a new app. */
export async function init(folder: string, { packages, template, json }: InitOptions): Promise<void> {
  let created: Awaited<ReturnType<typeof createApp>>;
  try {
    created = await createApp({ folder, template, ...(packages !== undefined && { packages }) });
  } catch (error) {
    if (!(error instanceof NotPossible)) throw error;
    throw new Failure(error.message, EXIT.usage, { cause: error });
  }
  if (json) return print(JSON.stringify(created));
  const place = relative("", created.folder);
  print(`${paint("green", "✓")} ${created.name}: ${created.files.join(", ")}`);
  print("");
  print("Now run it:");
  if (place) print(`  cd ${place}`);
  print("  npm install");
  print("  npm run dev");
}
