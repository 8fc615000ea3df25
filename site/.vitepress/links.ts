import { dirname, relative, resolve } from "node:path";
import type { MarkdownRenderer } from "vitepress";
import { leaves } from "./leaves.ts";

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
