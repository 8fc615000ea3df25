import { type Command, InvalidArgumentError } from "commander";

/** Adds the options of commands that read the settings of a server. */
export function withServerOptions(command: Command): Command {
  const app = ["dev", "serve"].includes(command.name());
  if (app)
    command
      .argument("[app]", "the app to serve: a file with a default export made by defineApp")
      .option("--app <file>", "the same as the argument");
  return command
    .option("--host <address>", "KHALA_HOST")
    .option("--port <port>", "KHALA_PORT; 0 picks a free one")
    .option("--data-dir <folder>", "KHALA_DATA_DIR")
    .option("--log-level <level>", "KHALA_LOG_LEVEL");
}

/** Adds the options of commands that call a server. */
export function withClientOptions(command: Command): Command {
  return command
    .option("--url <url>", "the server (default: KHALA_URL, or KHALA_HOST and KHALA_PORT)")
    .option("--token <jwt>", "a token (default: KHALA_TOKEN, or one requested from the server)");
}

/** Parses a positive integer. */
export function positiveInteger(text: string): number {
  if (!/^[1-9]\d*$/.test(text)) throw new InvalidArgumentError("Use a whole number of at least 1.");
  return Number(text);
}
