import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** A folder that is gone when it is disposed of, or when the program ends. */
export interface TempFolder extends Disposable {
  readonly path: string;
  /** To be called once the user of the folder has its own exit handler: the files go after their owner. */
  removeLast(): void;
}

/** Makes a temporary folder. */
export function tempFolder(name: string): TempFolder {
  const path = mkdtempSync(join(tmpdir(), `khala-bench-${name}-`));
  // A server that was killed a moment ago may still write.
  const remove = () => rmSync(path, { recursive: true, force: true, maxRetries: 10, retryDelay: 50 });
  process.once("exit", remove);
  return {
    path,
    removeLast() {
      process.off("exit", remove);
      process.once("exit", remove);
    },
    [Symbol.dispose]() {
      process.off("exit", remove);
      remove();
    },
  };
}
