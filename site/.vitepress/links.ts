import { dirname, relative, resolve } from "node:path";
import type { MarkdownRenderer } from "vitepress";

/**
 * Pages name files of the repository that are not pages: sources, examples, settings. On the site such a link would lead nowhere,
 * so it is shown as the path that it is.
 */
export function linksThatLeave(markdown: MarkdownRenderer, docs: string): void {
  markdown.core.ruler.push("links_that_leave", ({ tokens, env }) => {
    const page: string = env.path ?? "";
    for (const { children } of tokens) {
      let leaving = false;
      for (const token of children ?? []) {
        if (token.type === "link_open") {
          const target = token.attrGet("href") ?? "";
          leaving = leaves(target, page, docs);
          if (leaving) {
            const path = relative(dirname(docs), resolve(dirname(page), target.split("#")[0]!));
            token.tag = "span";
            token.attrs = [["title", path]];
          }
        } else if (token.type === "link_close" && leaving) {
          token.tag = "span";
          leaving = false;
        }
      }
    }
  });
}

/** Whether a link on a page leads to something that is no page of the site. */
export function leaves(target: string, page: string, docs: string): boolean {
  if (/^(?:[a-z]+:|#|\/)/i.test(target)) return false;
  const [path = ""] = target.split("#");
  const inside = !relative(docs, resolve(dirname(page), path)).startsWith("..");
  return !inside || !(path.endsWith(".md") || path.endsWith("/"));
}
