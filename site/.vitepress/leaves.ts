import { dirname, relative, resolve } from "node:path";

/** Whether a link on a page leads to something that is no page of the site. */
export function leaves(target: string, page: string, docs: string): boolean {
  if (/^(?:[a-z]+:|#|\/)/i.test(target)) return false;
  const [path = ""] = target.split("#");
  const inside = !relative(docs, resolve(dirname(page), path)).startsWith("..");
  return !inside || !(path.endsWith(".md") || path.endsWith("/"));
}
