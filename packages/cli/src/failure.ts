import { KhalaError } from "@khala/contracts";

/** Exit codes. Listed in `khala --help`; scripts rely on them. */
export const EXIT = {
  ok: 0,
  failed: 1,
  usage: 2,
  unreachable: 3,
  found: 4,
} as const;

/** An exit code of the table. */
export type ExitCode = (typeof EXIT)[keyof typeof EXIT];

/** A failure that is printed in one line: what happened and what to do next. */
export class Failure extends Error {
  override readonly name = "Failure";
  readonly exitCode: ExitCode;

  constructor(message: string, exitCode: ExitCode = EXIT.failed, options?: ErrorOptions) {
    super(message, options);
    this.exitCode = exitCode;
  }
}

/** The message of an error, and the exit code of the process. */
export function explain(error: unknown): { message: string; exitCode: ExitCode } {
  if (error instanceof Failure) return error;
  if (error instanceof KhalaError && error.code === "unavailable") {
    return { message: unavailable(error), exitCode: EXIT.unreachable };
  }
  if (error instanceof Error)
    return { message: isDiskFull(error) ? DISK_FULL : error.message, exitCode: EXIT.failed };
  return { message: String(error), exitCode: EXIT.failed };
}

const DISK_FULL =
  "There is no space left on the disk. Make room where the command writes, such as in KHALA_DATA_DIR, then run it again.";

function isDiskFull(error: Error & { readonly code?: unknown }): boolean {
  return error.code === "ENOSPC" || error.code === "EDQUOT";
}

/** A connection error needs its reason and advice; for others the message is enough. */
function unavailable({ message, cause }: KhalaError): string {
  if (!(cause instanceof Error) || isOfStatement(cause) || isOfNode(cause)) return message;
  return `The database cannot be reached (${reasonOf(cause)}). Check DATABASE_URL, or run \`khala doctor\`.`;
}

/** An error that the database itself reported, other than about a connection or a login. */
function isOfStatement(error: Error & { readonly code?: unknown }): boolean {
  return "severity" in error && !/^(08|28|3D|53|57P0)/.test(String(error.code));
}

/** Such as a driver that is not installed. A certificate that names another host is no such error. */
function isOfNode({ code }: Error & { readonly code?: unknown }): boolean {
  return typeof code === "string" && code.startsWith("ERR_") && !code.startsWith("ERR_TLS_");
}

/** The message of an error, or of its inner errors, as a refused connection to `localhost` has them. */
export function reasonOf(error: Error): string {
  if (error.message) return error.message;
  if (error instanceof AggregateError) return error.errors.map((inner: Error) => inner.message).join("; ");
  return error.name;
}

/** The error with its stack and its causes. */
export function withStack(error: unknown): string {
  const parts: string[] = [];
  for (let current = error; current !== undefined && parts.length < 10; ) {
    if (!(current instanceof Error)) {
      parts.push(String(current));
      break;
    }
    parts.push(current.stack ?? current.message);
    current = current.cause;
  }
  return parts.join("\ncaused by: ");
}
