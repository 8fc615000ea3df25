import { useMemo } from "react";
import { useFetch } from "../data/fetch.ts";
import { links, useParam } from "../router.ts";
import { Fetched } from "../ui/feedback/fetched.tsx";
import { Empty } from "../ui/feedback/notices.tsx";
import { useNarrow } from "../ui/hooks.ts";
import { LinkResolver, Markdown } from "../ui/markdown/markdown.tsx";
import { resolveLink, sortPages, titleOf } from "./docs_links.ts";
import "./docs.css";

const ROOT = "../../../../docs/";
/** The documentation of this version, each page in a file of its own that is loaded when it is opened. */
const FILES = import.meta.glob<string>(
  [
    "../../../../docs/*.md",
    "../../../../docs/{guides,protocol,runbooks}/**/*.md",
    "!../../../../docs/index.md",
  ],
  { query: "?raw", import: "default" },
);
const PAGES = sortPages(Object.keys(FILES).map((path) => path.slice(ROOT.length)));
const GROUPS = [
  { name: "Documentation", pages: PAGES.filter((page) => !page.includes("/")) },
  { name: "Guides", pages: PAGES.filter((page) => page.startsWith("guides/")) },
  { name: "Protocol", pages: PAGES.filter((page) => page.startsWith("protocol/")) },
  { name: "Runbooks", pages: PAGES.filter((page) => page.startsWith("runbooks/")) },
];
const FIRST = "GETTING_STARTED.md";

/** The Docs page: the documentation of the version that runs here. */
export default function DocsPage() {
  const [page = FIRST] = useParam("page");
  const narrow = useNarrow();
  return (
    <div className="docs">
      <nav className="docs-list" aria-label="Documentation">
        <details key={narrow ? page : "wide"} open={!narrow}>
          <summary>All pages</summary>
          {GROUPS.map(({ name, pages }) => (
            <section key={name}>
              <h2>{name}</h2>
              <ul>
                {pages.map((one) => (
                  <li key={one}>
                    <a href={links.docs(one)} aria-current={one === page ? "page" : undefined}>
                      {titleOf(one)}
                    </a>
                  </li>
                ))}
              </ul>
            </section>
          ))}
        </details>
      </nav>
      <DocsText key={page} page={page} />
    </div>
  );
}

function DocsText({ page }: { readonly page: string }) {
  const load = FILES[ROOT + page];
  const state = useFetch(load && ["docs", page], () => load!());
  const resolve = useMemo(() => {
    const known = new Set(PAGES);
    return (href: string) => resolveLink(href, page, known);
  }, [page]);
  if (!load)
    return (
      <Empty icon="search" title="Page not found">
        <code>{page}</code> is not part of this documentation.
      </Empty>
    );
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a scrolling area must be reachable by keyboard
    <section className="docs-text" aria-label={titleOf(page)} tabIndex={0}>
      <Fetched state={state}>
        {(text) => (
          <LinkResolver value={resolve}>
            <Markdown text={text} />
          </LinkResolver>
        )}
      </Fetched>
    </section>
  );
}
