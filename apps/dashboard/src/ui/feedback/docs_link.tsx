import type { ReactNode } from "react";
import { links } from "../../router.ts";

/** A link to a page of the documentation, such as "ENGINES.md": the page of this version, without a network. */
export function DocsLink({ page, children }: { readonly page: string; readonly children: ReactNode }) {
  return (
    <a className="text-link" href={links.docs(page)}>
      {children}
    </a>
  );
}
