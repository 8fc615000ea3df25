import { readFileSync } from "node:fs";
import { join } from "node:path";

const PACKAGES = join(import.meta.dirname, "../packages");

interface Manifest {
  readonly name: string;
  readonly exports: Readonly<Record<string, { readonly "khala-source"?: string }>>;
}

/** What the package of a source, such as `client/src/react`, exports it as. */
export function importName(source: string): string {
  const [folder = "", ...path] = source.split("/");
  const { name, exports } = JSON.parse(
    readFileSync(join(PACKAGES, folder, "package.json"), "utf8"),
  ) as Manifest;
  const files = [`./${path.join("/")}.ts`, `./${path.join("/")}/index.ts`];
  const [entry] = Object.entries(exports).find(([, to]) => files.includes(to["khala-source"] ?? "")) ?? [];
  if (!entry) throw new Error(`${name} does not export ${source}. Take it out of site/typedoc.json.`);
  return join(name, entry);
}
