import { readFileSync } from "node:fs";
import { glob } from "node:fs/promises";
import { join } from "node:path";
import { ROOT } from "./run.ts";

/** A fenced block of a document. */
export interface Block {
  readonly place: string;
  readonly language: string;
  readonly options: Readonly<Record<string, string>>;
  readonly code: string;
}

/** The fenced blocks of a document. */
export function blocksOf(file: string): Block[] {
  const text = readFileSync(join(ROOT, file), "utf8");
  return [...text.matchAll(/^```(.*)\n([\s\S]*?)^```$/gm)].map((match) => {
    const [language = "", ...rest] = match[1]!.trim().split(/ (.*)/);
    const options = [...(rest[0] ?? "").matchAll(/([\w-]+)(?:="([^"]*)"|=(\S+))?/g)];
    return {
      place: `${file}:${text.slice(0, match.index).split("\n").length}`,
      language,
      options: Object.fromEntries(options.map(([, name, quoted, plain]) => [name, quoted ?? plain ?? "yes"])),
      code: match[2]!,
    };
  });
}

/** README.md and every page of docs/, but for docs/api, which is written from the sources when the site is built. */
export async function docFiles(): Promise<string[]> {
  const files = ["README.md"];
  for await (const file of glob("docs/**/*.md", { cwd: ROOT }))
    if (!file.startsWith("docs/api/")) files.push(file);
  return files;
}
