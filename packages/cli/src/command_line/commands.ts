import { type Command, InvalidArgumentError, Option } from "commander";
import { EXIT, Failure } from "../failure.ts";

// Commands are loaded when they are called, so that `--help` and usage errors are fast.

/** `dev` and `serve`. */
export function declareServers(khala: Command): void {
  withServerOptions(khala.command("dev"))
    .description("run a server for development: embedded PostgreSQL, its own key, the demo app or yours")
    .option("--watch", "restart when a file of the app changes")
    .option("--no-activity", "the demo app without generated activity")
    .addHelpText(
      "after",
      `
Prints the address, a token, and commands to try. Without DATABASE_URL it starts an embedded PostgreSQL and keeps
its data in the data folder. Ctrl-C stops it gracefully, a second Ctrl-C at once.

Examples:
  khala dev --port 0                          on a free port
  khala dev examples/tasks/app.ts             your own models; see docs/DEFINING_MODELS.md`,
    )
    .action(async (app, options) => (await import("../commands/dev.ts")).dev(withApp(app, options)));

  withServerOptions(khala.command("serve"))
    .description("run a server for production: no default keys, no demo")
    .addHelpText(
      "after",
      `
Refuses to start without KHALA_AUTH_SECRETS, KHALA_AUTH_JWKS_URL or KHALA_AUTH_JWKS_FILE. Logs are JSON lines on the
output. Set DATABASE_URL to a PostgreSQL 14 or later; any number of servers may share it.

Example:
  KHALA_AUTH_SECRETS="k1:$(openssl rand -base64 32)" DATABASE_URL=postgres://… khala serve app.ts`,
    )
    .action(async (app, options) => (await import("../commands/serve.ts")).serve(withApp(app, options)));
}

/** `init`: creates an app. */
export function declareInit(khala: Command): void {
  khala
    .command("init")
    .description("create an app in an empty folder: a React page, a model, an agent, an engine, their tests")
    .argument("[folder]", "the folder to create it in", ".")
    .addOption(
      new Option("--template <name>", "what the page is made with").choices(["vite", "next"]).default("vite"),
    )
    .option("--packages <folder>", "packed Khala packages to use instead of the registry's")
    .option("--json", "print folder, name and files")
    .addHelpText(
      "after",
      `
The same as \`npm create khala <folder>\`. Nothing is installed: it prints what to run next.

Example:
  khala init my-app && cd my-app && npm install && npm run dev`,
    )
    .action(async (folder, options) => (await import("../commands/init.ts")).init(folder, options));
}

/** Commands that call a server. */
export function declareClient(khala: Command): void {
  khala
    .command("token")
    .description("print a token")
    .option("--sub <subject>", "the subject (default: dev)")
    .option("--org <org>", "the org of the subject (default: demo)")
    .option("--scope <scope...>", "topics and rights (default: every topic and every right of the app)")
    .option("--ttl <seconds>", "lifetime (default: the longest allowed)", positiveInteger)
    .option("--url <url>", "ask this server instead of signing here")
    .option("--app <file>", "the app (default: the last one that `khala dev` served from the data folder)")
    .option("--data-dir <folder>", "folder of the development key")
    .option("--json", "print token, expires_at and kid")
    .addHelpText(
      "after",
      `
Signs with the first of KHALA_AUTH_SECRETS, or with the key that \`khala dev\` made in the data folder. With --url it asks
that server: a development server answers every program on its machine, others need KHALA_AUTH_ISSUER_KEY.

Where \`khala dev\` has served no app and --app names none, the default is every right and no topic.

Examples:
  export TOKEN=$(khala token)
  khala token --sub ada --org demo --scope runtime.run_summaries --ttl 60`,
    )
    .action(async (options) => (await import("../commands/token.ts")).token(options));

  withClientOptions(khala.command("append"))
    .description("append an event to a run, a worker or another stream")
    .argument("<kind>", "run, worker, or a kind that your app defines")
    .argument("<id>", "the id of the stream")
    .argument("<type>", "the type of the event, such as run.started")
    .argument("[data]", "the event's data, as JSON", "{}")
    .option("--expected-seq <n>", "append only if the stream is at this sequence; 0 for a new one")
    .option("--event-id <id>", "your own id; repeating the command with it appends nothing twice")
    .option(
      "--app <file>",
      "the app that defines the kind (default: the last one that `khala dev` served here)",
    )
    .option("--json", "print seq and event_id")
    .addHelpText(
      "after",
      `
Examples:
  khala append run hello run.started '{"title":"Hello"}'
  khala append worker w1 worker.heartbeat`,
    )
    .action(async (kind, id, type, data, options) =>
      (await import("../commands/append.ts")).append(kind, id, type, data, options),
    );

  withClientOptions(khala.command("tail"))
    .description("follow a topic: its documents now, then every change")
    .argument("<topic>", "such as runtime.run_summaries")
    .addOption(
      new Option(
        "--from <where>",
        "start with the documents, with new changes only, or with the oldest retained change",
      )
        .choices(["list", "now", "oldest"])
        .default("list"),
    )
    .option("--count <n>", "stop after this many changes", positiveInteger)
    .option("--json", "one JSON object per line")
    .option("--quiet", "do not print the state of the connection")
    .addHelpText(
      "after",
      `
Reconnects by itself and resumes from its cursor: no change is missed or printed twice. A + is a new version of a
document, a - its end.

Examples:
  khala tail runtime.run_summaries
  khala tail runtime.notifications --json | jq .payload.text`,
    )
    .action(async (topic, options) => (await import("../commands/tail.ts")).tail(topic, options));
}

/** `mcp`: the tools of a server for an assistant on this machine. */
export function declareMcp(khala: Command): void {
  withClientOptions(khala.command("mcp"))
    .description("serve the Model Context Protocol on stdin and stdout, for assistants that start programs")
    .option("--scope <scope...>", "scopes of the assistant (default: all that a development server allows)")
    .addHelpText(
      "after",
      `
Forwards messages to /mcp of a running server. Name the server with --url, and pass a token with KHALA_TOKEN;
a development server on this machine mints one.

Example, in the settings of an assistant:
  {"mcpServers":{"khala":{"command":"khala","args":["mcp","--url","http://127.0.0.1:4000"]}}}`,
    )
    .action(async (options) => (await import("../commands/mcp.ts")).mcp(options));
}

/** `chat`: a conversation in the terminal. */
export function declareChat(khala: Command): void {
  withClientOptions(khala.command("chat"))
    .description("chat with the agent of a server, in a conversation that every device can follow")
    .argument("[message...]", "the message; without it, lines from stdin")
    .option("--conv <id>", "the conversation (default: your own, remembered in the data folder)")
    .addOption(
      new Option("--policy <what>", "while another run is active: refuse, queue, or stop it").choices([
        "reject",
        "queue",
        "interrupt",
      ]),
    )
    .option("--reasoning", "print the model's reasoning, too")
    .option("--json", "print run_id, status and text when the run has ended")
    .addHelpText(
      "after",
      `
The run continues on the server if this terminal closes; Ctrl-C stops it, on every device. Exits with 1 when the run
failed.

Examples:
  khala chat How is the weather in Oslo?
  khala chat --conv trip                      reads lines from the terminal; Ctrl-D ends it
  khala chat --json --policy queue "And tomorrow?" | jq -r .text`,
    )
    .action(async (words, options) => (await import("../commands/chat.ts")).chat(words, options));
}

/** Commands for operators. */
export function declareOperations(khala: Command): void {
  withServerOptions(khala.command("config"))
    .description("print every setting: its value here and now, and its meaning")
    .option("--json", "as JSON, with defaults")
    .option("--markdown", "as the table of docs/CONFIGURATION.md: defaults and meanings")
    .addHelpText("after", "\nSecrets are masked. Settings that differ from their default are bold.")
    .action(async (options) => (await import("../commands/config.ts")).config(options));

  withClientOptions(khala.command("audit"))
    .description("show the audit log: tokens, revocations, pauses, replays, approvals, deletes")
    .option("--action <action>", "only this action, such as dead_letter.replay")
    .option("--subject <subject>", "only of this subject")
    .option("--limit <n>", "how many of the newest (100)", positiveInteger)
    .option("--json", "one JSON object per line")
    .action(async (options) => (await import("../commands/audit.ts")).audit(options));

  withClientOptions(khala.command("erase"))
    .description("erase the data of a subject: events, documents, conversations, files, artifacts")
    .requiredOption("--subject <subject>", "the `sub` of its tokens")
    .option("--org <org>", "the org; another org than the token's needs the scope platform")
    .option("--yes", "erase the data; without it, the command only counts")
    .option("--json", "as JSON")
    .action(async (options) => (await import("../commands/erase.ts")).erase(options));

  const setAside = khala
    .command("set-aside")
    .description("list, retry and discard items that the board could not process");
  withClientOptions(setAside.command("list"))
    .description("list it, oldest first, each with its error")
    .option("--limit <n>", "how many (100)", positiveInteger)
    .option("--json", "one JSON object per line")
    .action(async (options) => (await import("../commands/board/set_aside.ts")).listSetAside(options));
  withClientOptions(setAside.command("retry"))
    .description("process an item again")
    .argument("<id>", "the id, from the list")
    .option("--json", "as JSON")
    .action(async (id, options) =>
      (await import("../commands/board/set_aside.ts")).retrySetAside(id, options),
    );
  withClientOptions(setAside.command("discard"))
    .description("delete an item")
    .argument("<id>", "the id, from the list")
    .option("--json", "as JSON")
    .action(async (id, options) =>
      (await import("../commands/board/set_aside.ts")).discardSetAside(id, options),
    );

  withClientOptions(khala.command("quotas"))
    .description("show what an org uses of its quotas, and how often it was refused")
    .option("--org <org>", "the org; another org than the token's needs the scope platform")
    .option("--json", "as JSON")
    .action(async (options) => (await import("../commands/quotas.ts")).quotas(options));

  withServerOptions(khala.command("doctor"))
    .description("check everything that a server needs, and print how to fix problems")
    .option("--json", "as JSON")
    .addHelpText(
      "after",
      "\nExits with 4 if there is a problem, else with 0. Warnings do not count as problems.",
    )
    .action(async (options) => (await import("../commands/doctor.ts")).doctor(options));

  declareBackups(khala);

  withDatabaseOptions(khala.command("migrate"))
    .description("create or update the schema and the tables of an app, without starting a server")
    .option("--grant <role>", "a role for servers: it may use the tables, not change the schema")
    .addHelpText(
      "after",
      `
A server migrates at its start if its role may. Otherwise run this with the role that owns the schema, before servers
whose role may not: see docs/OPERATIONS.md.

Example:
  DATABASE_URL=postgres://khala_owner:…@db/khala khala migrate --app app.ts --grant khala_server`,
    )
    .action(async (options) => (await import("../commands/operations.ts")).migrate(options));

  withDatabaseOptions(khala.command("reproject"))
    .description("rebuild the documents of a topic from the event log, and send clients those that differ")
    .argument("<topic>", "such as runtime.run_summaries")
    .option("--restart", "start from the beginning instead of resuming")
    .addHelpText(
      "after",
      `
For a model whose function has changed. Works beside running servers; Ctrl-C stops it, and the next call
resumes. See docs/runbooks/REPROJECTION.md.`,
    )
    .action(async (topic, options) => (await import("../commands/operations.ts")).reproject(topic, options));

  withDatabaseOptions(khala.command("retention"))
    .description("trim journals and conversations now, by KHALA_RETENTION_HOURS and KHALA_CHAT_*")
    .option("--dry-run", "only count what would be removed")
    .option("--hours <n>", "KHALA_RETENTION_HOURS")
    .addHelpText(
      "after",
      "\nServers do this automatically. docs/runbooks/RETENTION.md says when to run it by hand.",
    )
    .action(async (options) => (await import("../commands/operations.ts")).retention(options));

  withDatabaseOptions(khala.command("parity"))
    .description("compare the mirror with the documents: version, hash and lag of each")
    .argument("[topics...]", "default: every topic of the app")
    .addHelpText("after", "\nNeeds CONVEX_URL. Exits with 4 when a document differs, is missing or is extra.")
    .action(async (topics, options) => (await import("../commands/operations.ts")).parity(topics, options));

  const conversations = khala.command("conversations").description("copy conversations to another backend");
  withDatabaseOptions(conversations.command("copy"))
    .description("copy every conversation from PostgreSQL to the Redis of REDIS_URL; cursors stay valid")
    .addHelpText(
      "after",
      `
May be repeated: it copies only new entries. Copy while servers run, stop them, copy again, then start them with REDIS_URL: see
docs/runbooks/MOVE_TO_REDIS.md. Exits with 4 if Redis already has other conversations with the same names.`,
    )
    .action(async (options) => (await import("../commands/operations.ts")).copyConversations(options));

  const epoch = khala.command("epoch").description("the epoch of all cursors");
  withDatabaseOptions(epoch.command("rotate"))
    .description(
      "make every cursor stale, after a restore that Khala cannot detect, such as a volume snapshot",
    )
    .option("--yes", "confirm: every client lists again, all at once")
    .action(async (options) => (await import("../commands/operations.ts")).rotate(options));
}

function declareBackups(khala: Command): void {
  const dataDir = [
    "--data-dir <folder>",
    "folder of the embedded PostgreSQL, if DATABASE_URL is not set",
  ] as const;
  const backup = khala
    .command("backup")
    .description("write a consistent backup of the database to a file, and verify it")
    .argument("<file>", "the file to create")
    .option(...dataDir)
    .option("--json", "as JSON")
    .addHelpText(
      "after",
      `
Servers may run meanwhile. Without DATABASE_URL it uses the embedded PostgreSQL, and starts it if needed. The file
contains everything in PostgreSQL, unencrypted, but not the data in Redis or Kafka. See docs/OPERATIONS.md.

Examples:
  khala backup khala-$(date +%F).backup
  khala backup verify khala-2026-11-18.backup`,
    )
    .action(async (file, options) => (await import("../commands/backup.ts")).backup(file, options));
  backup
    .command("verify")
    .description("read a backup, and verify its checksum and number of rows")
    .argument("<file>", "the backup")
    .option("--json", "as JSON")
    // The parent has the same option and would take it.
    .action(async (file, _, command) =>
      (await import("../commands/backup.ts")).verify(file, command.optsWithGlobals()),
    );

  khala
    .command("restore")
    .description("restore a backup, and begin a new epoch: every client lists again")
    .argument("<file>", "the backup")
    .option("--replace", "delete the data in the database first")
    .option(...dataDir)
    .option("--json", "as JSON")
    .addHelpText(
      "after",
      `
Stop all servers and workers first. The restore is one transaction: if it fails or is stopped, nothing changes.
A backup with another schema is refused: restore it with the Khala version that made it.

Examples:
  khala restore khala.backup                  into an empty database
  khala restore khala.backup --replace`,
    )
    .action(async (file, options) => (await import("../commands/backup.ts")).restore(file, options));
}

function withDatabaseOptions(command: Command): Command {
  return command
    .option("--app <file>", "the app that defines the topics")
    .option("--data-dir <folder>", "folder of the embedded PostgreSQL, if DATABASE_URL is not set")
    .option("--json", "as JSON");
}

function withServerOptions(command: Command): Command {
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

/** The options of a command that serves an app, named by its argument or by an option. */
function withApp<Options extends { readonly app?: string }>(
  app: string | undefined,
  options: Options,
): Options {
  if (app === undefined) return options;
  if (options.app === undefined) return { ...options, app };
  throw new Failure("The app is named twice, as an argument and with --app. Remove one.", EXIT.usage);
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
