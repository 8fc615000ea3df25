/**
 * What a role, a database or a server may set otherwise. Sessions have these values instead, so that each statement means the
 * same, and each value looks the same, on every server.
 */
const SETTINGS: Readonly<Record<string, string>> = {
  datestyle: "ISO, YMD",
  intervalstyle: "postgres",
  timezone: "UTC",
  bytea_output: "hex",
  extra_float_digits: "1",
  standard_conforming_strings: "on",
  array_nulls: "on",
  quote_all_identifiers: "off",
  default_transaction_isolation: "read committed",
  // Statements run for milliseconds: compiling one takes longer than running it, on a stock server up to seconds.
  jit: "off",
  // A paused process must not hold a topic's row lock for ever.
  idle_in_transaction_session_timeout: "15000",
  lock_timeout: "0",
  // LISTEN waits in an idle session.
  idle_session_timeout: "0",
  // From PostgreSQL 17 on.
  transaction_timeout: "0",
};

/** The columns of a SELECT that sets a session up. By a statement: a pooler refuses such settings as parameters of the connection. */
export function sessionSettings(statementTimeoutMs: number): string {
  const all = Object.entries({ ...SETTINGS, statement_timeout: String(statementTimeoutMs) });
  const known = ([name, value]: readonly [string, string]) =>
    name === "transaction_timeout"
      ? `CASE WHEN current_setting('${name}', true) IS NOT NULL THEN set_config('${name}', '${value}', false) END`
      : `set_config('${name}', '${value}', false)`;
  return all.map(known).join(", ");
}
