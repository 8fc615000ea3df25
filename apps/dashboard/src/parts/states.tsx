import type { ReactNode } from "react";
import { links } from "../router.ts";
import { errorWords } from "../strings/errors.ts";
import { partWords } from "../strings/parts.ts";
import { Button } from "./button.tsx";
import { Icon, type IconName } from "./icons.tsx";

export interface EmptyProps {
  readonly title: string;
  /** What makes something appear here. */
  readonly children?: ReactNode;
  readonly action?: ReactNode;
  readonly icon?: IconName;
}

/** There is nothing to show, and that is all right. */
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

/** The first answer is on its way. Shown after a moment only, so that quick answers do not flash. */
export function Loading({ label = partWords.loading }: { readonly label?: string }) {
  return (
    <div className="notice notice-loading" role="status">
      <Icon name="working" size={18} />
      <p>{label}</p>
    </div>
  );
}

/** What a failure is made of: a KhalaError fits. */
export interface FailureLike {
  readonly message: string;
  readonly code?: string;
}

export interface FailureProps {
  readonly error: FailureLike;
  readonly onRetry?: () => void;
  /** In a line of its own beside data that is still shown, instead of in its place. */
  readonly inline?: boolean;
}

const FORBIDDEN = new Set(["missing_scope", "forbidden_topic"]);
/** Only another token mends these. */
const UNKNOWN_TO_SERVER = new Set([
  "missing_authorization",
  "invalid_token",
  "token_expired",
  "token_revoked",
]);

/** What happened, why, and what to do. A missing scope is shown as such. */
export function Failure({ error, onRetry, inline = false }: FailureProps) {
  const code = error.code ?? "internal";
  if (FORBIDDEN.has(code) && !inline) return <Forbidden error={error} />;
  const words = errorWords(code);
  const retry = UNKNOWN_TO_SERVER.has(code) ? (
    <Button icon="key" onClick={askForToken}>
      {partWords.useAnotherToken}
    </Button>
  ) : (
    onRetry && (
      <Button icon="retry" onClick={onRetry}>
        {partWords.tryAgain}
      </Button>
    )
  );
  const docs = (
    <a className="text-link" href={links.error(code)}>
      <code>{code}</code>
      <span className="visually-hidden">{partWords.aboutCode(code)}</span>
    </a>
  );
  if (inline)
    return (
      <div className="failure-line" role="alert">
        <Icon name="failed" size={14} />
        <span>
          {!error.message.startsWith(words.title) && <strong>{words.title}. </strong>}
          {error.message} {docs}
        </span>
        {retry}
      </div>
    );
  return (
    <div className="notice" role="alert">
      <span className="failed">
        <Icon name="failed" size={22} />
      </span>
      <h2>{words.title}</h2>
      <p className="notice-message">{error.message}</p>
      <dl className="notice-facts">
        <dt>{partWords.why}</dt>
        <dd>{words.why}</dd>
        <dt>{partWords.whatToDo}</dt>
        <dd>{words.todo}</dd>
        <dt>{partWords.codeLabel}</dt>
        <dd>{docs}</dd>
      </dl>
      {retry}
    </div>
  );
}

interface ForbiddenProps {
  /** The scope that is missing, when it is known. */
  readonly scope?: string;
  readonly error?: FailureLike;
}

/** The token does not allow it: which scope it takes, and where to get one. */
function Forbidden({ error, scope = scopeOf(error) }: ForbiddenProps) {
  return (
    <div className="notice">
      <Icon name="lock" size={22} />
      <h2>{partWords.forbiddenTitle}</h2>
      {error && scope === undefined && <p className="notice-message">{error.message}</p>}
      <p className="notice-body">
        {scope === undefined ? partWords.forbiddenBodyPlain : partWords.forbiddenBody(scope)}
      </p>
      <code className="notice-code">khala token --scope {scope ?? "ops"}</code>
      <Button icon="key" onClick={askForToken}>
        {partWords.useAnotherToken}
      </Button>
    </div>
  );
}

/** The scope that the server's message names, such as: This needs the scope "chat". */
function scopeOf(error: FailureLike | undefined): string | undefined {
  return /\b(?:scope|topic) "([^"]+)"/.exec(error?.message ?? "")?.[1];
}

/** The event by which any part asks the session for another token. */
export const ASK_FOR_TOKEN = "khala:ask-for-token";

function askForToken(): void {
  window.dispatchEvent(new Event(ASK_FOR_TOKEN));
}
