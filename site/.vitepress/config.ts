import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { defineConfig } from "vitepress";
import { linksThatLeave } from "./links.ts";

const DOCS = join(import.meta.dirname, "../../docs");

interface Item {
  readonly text: string;
  readonly link: string;
  readonly collapsed?: boolean;
  readonly items?: Item[];
}

const page = (text: string, file: string): Item => ({ text, link: `/${file}` });

/** The pages of a folder, under the titles that they have themselves. */
function pagesIn(folder: string): Item[] {
  return readdirSync(join(DOCS, folder))
    .filter((file) => file.endsWith(".md") && !["README.md", "index.md"].includes(file))
    .sort()
    .map((file) => {
      const [, title = file] = /^# (.+)$/m.exec(readFileSync(join(DOCS, folder, file), "utf8")) ?? [];
      return page(title.replaceAll("`", ""), `${folder}/${file.slice(0, -3)}`);
    });
}

/** The page of a protocol, with those of its folder below it. */
const protocol = (text: string, file: string, folder: string): Item => ({
  ...page(text, `protocol/${file}`),
  collapsed: true,
  items: pagesIn(`protocol/${folder}`),
});

/** The modules of the API reference, which is there once `scripts/build/site.ts` has made it. */
function modules(): Item[] {
  const index = join(DOCS, "api/index.md");
  if (!existsSync(index)) return [];
  const links = readFileSync(index, "utf8").matchAll(/^- \[(.+)\]\((.+)\.md\)$/gm);
  return [...links].map(([, name = "", file = ""]) => page(name, `api/${file}`));
}

export default defineConfig({
  title: "Khala",
  description: "The real-time backbone for agent applications.",
  // No icon, and no request for one.
  head: [["link", { rel: "icon", href: "data:," }]],
  srcDir: "../docs",
  outDir: "dist",
  cacheDir: "../node_modules/.cache/vitepress",
  cleanUrls: true,
  rewrites: { "adr/README.md": "adr/index.md" },
  vite: {
    build: {
      // The index of the search is one file, and read when somebody searches.
      chunkSizeWarningLimit: 2_000,
      // Pages lie outside of this folder, which has the install. The compiled pages lie inside and find it.
      rollupOptions: { external: ["vue/server-renderer"] },
    },
  },
  markdown: { config: (markdown) => linksThatLeave(markdown, DOCS) },
  themeConfig: {
    search: { provider: "local" },
    outline: [2, 3],
    nav: [
      page("Start", "GETTING_STARTED"),
      page("Concepts", "CONCEPTS"),
      page("Client", "CLIENT"),
      page("API", "api/"),
    ],
    sidebar: [
      {
        text: "Start",
        items: [
          page("Getting started", "GETTING_STARTED"),
          page("Concepts", "CONCEPTS"),
          page("Security model", "SECURITY-MODEL"),
          page("A tour of the code", "TOUR"),
        ],
      },
      { text: "Guides", items: pagesIn("guides") },
      {
        text: "Sync",
        items: [
          page("Defining models", "DEFINING_MODELS"),
          page("Surfaces", "sync/SURFACES"),
          protocol("Protocol", "OA_SYNC_WS_MAPPING", "sync"),
          page("Metrics", "sync/METRICS"),
        ],
      },
      {
        text: "Conversations",
        items: [
          page("Engines", "ENGINES"),
          protocol("Protocol", "CONVERSATIONS", "conversations"),
          page("Metrics", "conversations/METRICS"),
        ],
      },
      {
        text: "Blackboard",
        items: [
          page("Agents", "AGENTS"),
          protocol("Protocol", "BLACKBOARD", "blackboard"),
          page("Metrics", "blackboard/METRICS"),
        ],
      },
      {
        text: "Client",
        items: [page("Client", "CLIENT"), page("React", "REACT"), page("Recipes", "RECIPES")],
      },
      {
        text: "Operations",
        items: [
          page("Operating Khala", "OPERATIONS"),
          page("Configuration", "CONFIGURATION"),
          page("Embedding", "EMBEDDING"),
          protocol("HTTP", "HTTP", "http"),
          page("Errors", "protocol/ERRORS"),
          protocol("The dashboard's interface", "OPS", "ops"),
        ],
      },
      { text: "Runbooks", collapsed: true, items: pagesIn("runbooks") },
      { text: "Decisions", collapsed: true, items: pagesIn("adr") },
      { text: "API reference", collapsed: true, items: modules() },
    ],
  },
});
