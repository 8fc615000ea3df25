/** Where something is to listen, and the setting that says so. */
export interface Listening {
  readonly host: string;
  readonly port: number;
  readonly setting: string;
}

/** The address of a server, as one would type it. */
export function urlOf(host: string, port: number): string {
  return `http://${host.includes(":") ? `[${host}]` : host}:${port}`;
}

/** Why it does not listen: a port that is in use is told with what to do, anything else as it is. */
export function whyNotListening(error: unknown, { host, port, setting }: Listening): unknown {
  if ((error as { code?: string }).code !== "EADDRINUSE") return error;
  return new Error(
    `Port ${port} on ${host} is in use. Stop what listens there, or set ${setting} (0 picks a free one).`,
    { cause: error },
  );
}
