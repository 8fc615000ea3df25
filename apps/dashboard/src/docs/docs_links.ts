import { links } from "../router.ts";

/** The name of a page of the documentation: "GETTING_STARTED.md" is "Getting started". */
export function titleOf(page: string): string {
  const name = page.slice(page.lastIndexOf("/") + 1).replace(/\.md$/, "");
  // Names such as HTTP stay as they are.
  if (/^[A-Z]{2,5}$/.test(name) && !["TOUR", "REACT"].includes(name)) return name;
  const words = name.replaceAll(/[_-]/g, " ").toLowerCase();
  return words.charAt(0).toUpperCase() + words.slice(1);
}

/** The address of a link from one page of the documentation to another; undefined for what is not part of it. */
export function resolveLink(href: string, page: string, known: ReadonlySet<string>): string | undefined {
  if (/^[a-z]+:/i.test(href)) return undefined;
  const base = new URL(page, "http://docs/");
  const { pathname } = new URL(href, base);
  const target = decodeURIComponent(pathname.slice(1));
  return known.has(target) ? links.docs(target) : undefined;
}
