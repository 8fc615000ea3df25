import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

/** The versions of everything that is compared. */
export function versions(postgres: string, centrifugo: string | undefined): string[] {
  return [
    `Node ${process.version}`,
    `PostgreSQL ${postgres} (embedded, its default settings here: fsync and synchronous_commit on, shared_buffers 48 MB)`,
    centrifugo ?? "Centrifugo: not installed, left out",
    ...["pg", "ws", "socket.io"].map((name) => `${name} ${packageVersion(name)}`),
  ];
}

function packageVersion(name: string): string {
  const file = createRequire(import.meta.url).resolve(`${name}/package.json`);
  return JSON.parse(readFileSync(file, "utf8")).version;
}
