import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const PEERS = fileURLToPath(new URL("../../peers/node_modules", import.meta.url));

/** The version of an installed package, which need not export its package.json: of the peers, or else of the root install. */
export function packageVersion(name: string): string {
  const peer = read(join(PEERS, name, "package.json"));
  if (peer) return peer.version;
  for (let folder = dirname(fileURLToPath(import.meta.resolve(name))); ; folder = dirname(folder)) {
    const about = read(join(folder, "package.json"));
    if (about?.name === name) return about.version;
    if (dirname(folder) === folder) throw new Error(`The package ${name} has no version.`);
  }
}

function read(file: string): { name?: string; version: string } | undefined {
  try {
    return JSON.parse(readFileSync(file, "utf8"));
  } catch {
    // There is none in this folder: the one above may have it.
    return undefined;
  }
}
