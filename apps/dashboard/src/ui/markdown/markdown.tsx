import { lexer, type MarkedToken, type Token } from "marked";
import { createContext, createElement, memo, type ReactNode, use, useMemo } from "react";
import { Button } from "../controls/button.tsx";
import { useCopy } from "../hooks.ts";
import "./markdown.css";

/** Longer texts are shown as they are: they are parsed again with every token. */
export const MAX_MARKDOWN = 60_000;
/** Deeper lists and quotes are shown as text. */
const MAX_DEPTH = 12;
const LINK = /^(https?:|mailto:)/i;

/** Markdown as elements. Nothing of it becomes HTML: tags are shown as text, and images and other addresses as links or text. */
export function Markdown({ text }: { readonly text: string }) {
  const blocks = useMemo(() => lexer(text, { gfm: true }), [text]);
  return (
    <div className="message-text markdown">
      {blocks.map((block, index) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: a message grows at its end
        <Block key={index} raw={block.raw} block={block as MarkedToken} />
      ))}
    </div>
  );
}

interface BlockProps {
  readonly raw: string;
  readonly block: MarkedToken;
}

/** A top-level block. While a message grows, only its last ones are rendered again. */
const Block = memo(
  ({ block }: BlockProps) => blockOf(block, 0),
  (a, b) => a.raw === b.raw && a.block.type === b.block.type,
);

function all(tokens: readonly Token[] | undefined, render: (token: MarkedToken) => ReactNode): ReactNode {
  // biome-ignore lint/suspicious/noArrayIndexKey: tokens have no ids
  return tokens?.map((token, index) => <Piece key={index}>{render(token as MarkedToken)}</Piece>);
}

const Piece = ({ children }: { readonly children: ReactNode }) => children;

function blockOf(token: MarkedToken, depth: number): ReactNode {
  if (depth > MAX_DEPTH) return <p>{token.raw}</p>;
  const inside = (tokens: readonly Token[] | undefined) => all(tokens, (one) => blockOf(one, depth + 1));
  switch (token.type) {
    case "space":
    case "def":
      return null;
    case "hr":
      return <hr />;
    case "heading":
      // Below the headings of the page.
      return createElement(`h${Math.min(6, token.depth + 3)}`, null, inline(token.tokens, depth));
    case "paragraph":
      return <p>{inline(token.tokens, depth)}</p>;
    case "text":
      return token.tokens ? inline(token.tokens, depth) : token.text;
    case "code":
      return <CodeBlock text={token.text} language={token.lang} />;
    case "blockquote":
      return <blockquote>{inside(token.tokens)}</blockquote>;
    case "list":
      return createElement(
        token.ordered ? "ol" : "ul",
        token.ordered && token.start !== "" ? { start: token.start } : null,
        all(token.items, (item) => <li>{inside((item as { tokens?: Token[] }).tokens)}</li>),
      );
    case "table":
      return (
        <div className="markdown-table">
          <table>
            <thead>
              <tr>
                {token.header.map((cell, index) => (
                  // biome-ignore lint/suspicious/noArrayIndexKey: cells have no ids
                  <th key={index}>{inline(cell.tokens, depth)}</th>
                ))}
              </tr>
            </thead>
            <tbody>
              {token.rows.map((row, at) => (
                // biome-ignore lint/suspicious/noArrayIndexKey: rows have no ids
                <tr key={at}>
                  {row.map((cell, index) => (
                    // biome-ignore lint/suspicious/noArrayIndexKey: cells have no ids
                    <td key={index}>{inline(cell.tokens, depth)}</td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      );
    case "html":
      return <p>{token.raw}</p>;
    default:
      return inlineOf(token, depth);
  }
}

const inline = (tokens: readonly Token[] | undefined, depth: number) =>
  all(tokens, (token) => inlineOf(token, depth + 1));

function inlineOf(token: MarkedToken, depth: number): ReactNode {
  if (depth > MAX_DEPTH) return token.raw;
  switch (token.type) {
    case "strong":
      return <strong>{inline(token.tokens, depth)}</strong>;
    case "em":
      return <em>{inline(token.tokens, depth)}</em>;
    case "del":
      return <del>{inline(token.tokens, depth)}</del>;
    case "codespan":
      return <code>{token.text}</code>;
    case "br":
      return <br />;
    case "escape":
      return token.text;
    case "checkbox":
      return token.checked ? "☑ " : "☐ ";
    case "link":
      return <OutLink href={token.href}>{inline(token.tokens, depth)}</OutLink>;
    case "image":
      // Loading it would tell its server who reads this.
      return <OutLink href={token.href}>{token.text || token.href}</OutLink>;
    case "text":
      return token.tokens ? inline(token.tokens, depth) : token.text;
    default:
      return token.raw;
  }
}

/** Finds the address within this app for a link of a text; none in what models and people write. */
export const LinkResolver = createContext<(href: string) => string | undefined>(() => undefined);

/** A link to another site; an address that a browser would not just open stays text. */
export function OutLink({ href, children }: { readonly href: string; readonly children: ReactNode }) {
  const own = use(LinkResolver)(href);
  if (own !== undefined)
    return (
      <a className="text-link" href={own}>
        {children}
      </a>
    );
  if (!LINK.test(href)) return children;
  return (
    <a className="text-link" href={href} target="_blank" rel="noopener noreferrer nofollow">
      {children}
    </a>
  );
}

function CodeBlock({ text, language }: { readonly text: string; readonly language: string | undefined }) {
  const [copied, copy] = useCopy();
  const name = (language ?? "").split(/\s/)[0];
  return (
    <figure className="code-block">
      <figcaption>
        <span>{name || "code"}</span>
        <Button kind="bare" icon={copied ? "check" : "copy"} onClick={() => copy(text)}>
          {copied ? "Copied" : "Copy"}
        </Button>
      </figcaption>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a scrolling area must be reachable by keyboard */}
      <pre tabIndex={0} aria-label={name ? `Code in ${name}` : "Code"} role="region">
        <code>{text}</code>
      </pre>
    </figure>
  );
}
