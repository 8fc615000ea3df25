import type { ReactNode } from "react";
import type { ErrorInfo } from "../../data/fetch.ts";
import { links } from "../../router.ts";
import { Button } from "../controls/button.tsx";
import { Icon, type IconName } from "../controls/icons.tsx";
import { errorHelp } from "./error_help.ts";

export interface EmptyProps {
  readonly title: string;
  /** What makes something appear here. */
  readonly children?: ReactNode;
  readonly action?: ReactNode;
  readonly icon?: IconName;
}

/** An empty state: there is nothing to show, and nothing is wrong. */
export function Empty({ title, children, action, icon }: EmptyProps) {
  return (
    <div className="notice">
      {icon && <Icon name={icon} size={22} />}
      <h2>{title}</h2>
      {children !== undefined && <div className="notice-body">{children}</div>}
      {action}
    </div>
  );
}

/** Shown after a short delay only, so that quick answers do not flash. */
export function Loading({ label = "Loading…" }: { readonly label?: string }) {
  return (
    <div className="notice notice-loading" role="status">
      <Icon name="working" size={18} />
      <p>{label}</p>
    </div>
  );
}

export interface FailureProps {
  readonly error: ErrorInfo;
  readonly onRetry?: () => void;
  /** One line above data that is still shown, instead of in its place. */
  readonly inline?: boolean;
}

const FORBIDDEN = new Set(["missing_scope", "forbidden_topic"]);
/** Only another token fixes these. */
const UNAUTHENTICATED = new Set(["missing_authorization", "invalid_token", "token_expired", "token_revoked"]);

/** What happened, why, and what to do. */
export function Failure({ error, onRetry, inline = false }: FailureProps) {
  const code = error.code ?? "internal";
  if (FORBIDDEN.has(code) && !inline) return <Forbidden error={error} />;
  const { title, why, fix } = errorHelp(code);
  const action = UNAUTHENTICATED.has(code) ? (
    <TokenButton />
  ) : (
    onRetry && (
      <Button icon="retry" onClick={onRetry}>
        Retry
      </Button>
    )
  );
  const codeLink = (
    <a className="text-link" href={links.error(code)}>
      <code>{code}</code>
      <span className="visually-hidden">About {code}</span>
    </a>
  );
  if (inline)
    return (
      <div className="failure-line" role="alert">
        <Icon name="failed" size={14} />
        <span>
          {!error.message.startsWith(title) && <strong>{title}. </strong>}
          {error.message} {codeLink}
        </span>
        {action}
      </div>
    );
  return (
    <div className="notice" role="alert">
      <span className="failed">
        <Icon name="failed" size={22} />
      </span>
      <h2>{title}</h2>
      <p className="notice-message">{error.message}</p>
      <dl className="notice-facts">
        <dt>Cause</dt>
        <dd>{why}</dd>
        <dt>What to do</dt>
        <dd>{fix}</dd>
        <dt>Error code</dt>
        <dd>{codeLink}</dd>
      </dl>
      {action}
    </div>
  );
}

function Forbidden({ error }: { readonly error: ErrorInfo }) {
  // The server names it: This needs the scope "chat".
  const scope = /\b(?:scope|topic) "([^"]+)"/.exec(error.message)?.[1];
  return (
    <div className="notice">
      <Icon name="lock" size={22} />
      <h2>Your token lacks a scope</h2>
      {scope === undefined && <p className="notice-message">{error.message}</p>}
      <p className="notice-body">
        {scope === undefined
          ? "Use a token with the right scope, or create one:"
          : `This needs the scope ${scope}. Use a token that has it, or create one:`}
      </p>
      <code className="notice-code">khala token --scope {scope ?? "ops"}</code>
      <TokenButton />
    </div>
  );
}

/** The event by which any component opens the token dialog of the session. */
export const CHANGE_TOKEN = "khala:change-token";

function TokenButton() {
  return (
    <Button icon="key" onClick={() => window.dispatchEvent(new Event(CHANGE_TOKEN))}>
      Use another token
    </Button>
  );
}
