import { type Command, InvalidArgumentError, Option } from "commander";

// What each command does is loaded when it is called: `--help` and a typing error need not wait for a server.

/** `dev` and `serve`. */
export function declareServers(khala: Command): void {
  withServerOptions(khala.command("dev"))
    .description("run a server for development: embedded PostgreSQL, a key of its own, the demo app or yours")
    .option("--no-activity", "the demo app without the events that make it move")
    .addHelpText(
      "after",
      `
Prints the address, a token, and commands to try. Without DATABASE_URL it brings its own PostgreSQL and keeps
everything in the data folder. Ctrl-C stops it in order, a second one at once.

Examples:
  khala dev --port 0                          on a free port
  khala dev --app examples/tasks/app.ts       your own models; see docs/DEFINING_MODELS.md`,
    )
    .action(async (options) => (await import("../commands/dev.ts")).dev(options));

  withServerOptions(khala.command("serve"))
    .description("run a server for production: no default keys, no demo")
    .addHelpText(
      "after",
      `
Refuses to start without KHALA_AUTH_SECRETS, KHALA_AUTH_JWKS_URL or KHALA_AUTH_JWKS_FILE. Logs are JSON lines on the
output. Set DATABASE_URL to a PostgreSQL 14 or later; any number of servers may share it.

Example:
  KHALA_AUTH_SECRETS="k1:$(openssl rand -base64 32)" DATABASE_URL=postgres://… khala serve --app app.ts`,
    )
    .action(async (options) => (await import("../commands/serve.ts")).serve(options));
}

/** `init`: where an app begins. */
export function declareInit(khala: Command): void {
  khala
    .command("init")
    .description("make a new app in an empty folder: a model, an agent, a client that follows them")
    .argument("[folder]", "where it goes", ".")
    .option("--packages <folder>", "packed Khala packages to use instead of the registry's")
    .option("--json", "print folder, name and files")
    .addHelpText(
      "after",
      `
The same as \`npm create khala <folder>\`. Nothing is installed: it says what to run next.

Example:
  khala init my-app && cd my-app && npm install && npm run dev`,
    )
    .action(async (folder, options) => (await import("../commands/init.ts")).init(folder, options));
}

/** What talks to a server, or gets in. */
export function declareClient(khala: Command): void {
  khala
    .command("token")
    .description("print a token")
    .option("--sub <subject>", "who it is for (default: dev)")
    .option("--org <org>", "the org of the subject (default: demo)")
    .option("--scope <scope...>", "topics and rights (default: every topic and every right)")
    .option("--ttl <seconds>", "how long it is good for (default: as long as is allowed)", positiveInteger)
    .option("--url <url>", "ask this server instead of signing here")
    .option("--app <file>", "the app whose topics are meant by default")
    .option("--data-dir <folder>", "where the development key is")
    .option("--json", "print token, expires_at and kid")
    .addHelpText(
      "after",
      `
Signs with the first of KHALA_AUTH_SECRETS, or with the key that \`khala dev\` made in the data folder. With --url it asks
that server: one in development answers anybody on its machine, others want KHALA_AUTH_ISSUER_KEY.

Examples:
  export TOKEN=$(khala token)
  khala token --sub ada --org acme --scope runtime.run_summaries --ttl 60`,
    )
    .action(async (options) => (await import("../commands/token.ts")).token(options));

  withClientOptions(khala.command("append"))
    .description("append an event to a run, a worker or another stream")
    .argument("<kind>", "run, worker, invoice, or a kind of your app")
    .argument("<id>", "the id of the stream")
    .argument("<type>", "the type of the event, such as run.started")
    .argument("[data]", "the event's data, as JSON", "{}")
    .option("--expected-seq <n>", "append only if the stream is at this sequence; 0 for a new one")
    .option("--event-id <id>", "an id of your own: a repeat is answered as the first time")
    .option("--app <file>", "the app that has the kind")
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
      new Option("--from <where>", "begin with the documents, with news only, or with all that is retained")
        .choices(["list", "now", "oldest"])
        .default("list"),
    )
    .option("--count <n>", "stop after so many changes", positiveInteger)
    .option("--json", "one JSON object per line")
    .option("--quiet", "do not tell of the connection")
    .addHelpText(
      "after",
      `
Reconnects by itself and resumes from its cursor: nothing is missed and nothing told twice. A + is a new version of a
document, a - its end.

Examples:
  khala tail runtime.run_summaries
  khala tail runtime.notifications --json | jq .payload.text`,
    )
    .action(async (topic, options) => (await import("../commands/tail.ts")).tail(topic, options));
}

/** `chat`: a conversation in the terminal. */
export function declareChat(khala: Command): void {
  withClientOptions(khala.command("chat"))
    .description("talk to the agent of a server, in a conversation that every device can follow")
    .argument("[message...]", "what to say; without it, what is typed")
    .option("--conv <id>", "the conversation", "terminal")
    .addOption(
      new Option("--policy <what>", "while an answer is under way: refuse, wait, or stop it").choices([
        "reject",
        "queue",
        "interrupt",
      ]),
    )
    .option("--reasoning", "print what the model thinks, too")
    .option("--json", "print run_id, status and text when the run has ended")
    .addHelpText(
      "after",
      `
The run goes on at the server whatever happens to this terminal; Ctrl-C stops it, on every device. Ends with 1 when the run
failed.

Examples:
  khala chat How is the weather in Oslo?
  khala chat --conv trip                      type, line by line; Ctrl-D ends it
  khala chat --json --policy queue "And tomorrow?" | jq -r .text`,
    )
    .action(async (words, options) => (await import("../commands/chat.ts")).chat(words, options));
}

/** What an operator needs. */
export function declareOperations(khala: Command): void {
  withServerOptions(khala.command("config"))
    .description("print every setting: its value here and now, and what it is for")
    .option("--json", "as JSON, with defaults")
    .option("--markdown", "the table of docs/CONFIGURATION.md: defaults and meanings")
    .addHelpText("after", "\nSecrets are masked. What differs from its default is bold.")
    .action(async (options) => (await import("../commands/config.ts")).config(options));

  withServerOptions(khala.command("doctor"))
    .description("look for what keeps a server from starting or working, and say how to mend it")
    .option("--json", "as JSON")
    .addHelpText("after", "\nEnds with 4 when something is wrong, 0 otherwise; a warning is not wrong.")
    .action(async (options) => (await import("../commands/doctor.ts")).doctor(options));

  withDatabaseOptions(khala.command("reproject"))
    .description("make the documents of a topic anew from the log, and tell clients of those that differ")
    .argument("<topic>", "such as runtime.run_summaries")
    .option("--restart", "begin anew instead of going on with one that was interrupted")
    .addHelpText(
      "after",
      `
For a model whose function has changed. Works beside the live documents while servers run; Ctrl-C stops it, and the next
call goes on. See docs/runbooks/REPROJECTION.md.`,
    )
    .action(async (topic, options) => (await import("../commands/operations.ts")).reproject(topic, options));

  withDatabaseOptions(khala.command("retention"))
    .description(
      "trim the journals and the conversations now, to what KHALA_RETENTION_HOURS and KHALA_CHAT_* keep",
    )
    .option("--dry-run", "only count what would go")
    .option("--hours <n>", "KHALA_RETENTION_HOURS")
    .addHelpText("after", "\nServers do this by themselves; see docs/runbooks/RETENTION.md for when to help.")
    .action(async (options) => (await import("../commands/operations.ts")).retention(options));

  withDatabaseOptions(khala.command("parity"))
    .description("compare the second sink with the read models: version, hash and lag of every document")
    .argument("[topics...]", "default: every topic of the app")
    .addHelpText("after", "\nNeeds CONVEX_URL. Ends with 4 when a document differs, is missing or is extra.")
    .action(async (topics, options) => (await import("../commands/operations.ts")).parity(topics, options));

  const conversations = khala.command("conversations").description("where conversations are kept");
  withDatabaseOptions(conversations.command("copy"))
    .description("copy every conversation from PostgreSQL to the Redis of REDIS_URL; cursors stay good")
    .addHelpText(
      "after",
      `
May be repeated, and adds what is new. Copy while servers run, stop them, copy once more, then start them with REDIS_URL: see
docs/runbooks/MOVE_TO_REDIS.md. Ends with 4 when Redis has other conversations under some of the names.`,
    )
    .action(async (options) => (await import("../commands/operations.ts")).copyConversations(options));

  const epoch = khala.command("epoch").description("the epoch of all cursors");
  withDatabaseOptions(epoch.command("rotate"))
    .description(
      "make every cursor stale, after a restore that Khala cannot notice, such as a volume snapshot",
    )
    .option("--yes", "do it: every client lists anew, all at once")
    .action(async (options) => (await import("../commands/operations.ts")).rotate(options));
}

function withDatabaseOptions(command: Command): Command {
  return command
    .option("--app <file>", "the app that has the topics")
    .option("--data-dir <folder>", "where the embedded PostgreSQL is, without DATABASE_URL")
    .option("--json", "as JSON");
}

function withServerOptions(command: Command): Command {
  const app = ["dev", "serve"].includes(command.name());
  if (app) command.option("--app <file>", "the app to serve: a file with a default export made by defineApp");
  return command
    .option("--host <address>", "KHALA_HOST")
    .option("--port <port>", "KHALA_PORT; 0 picks a free one")
    .option("--data-dir <folder>", "KHALA_DATA_DIR")
    .option("--log-level <level>", "KHALA_LOG_LEVEL");
}

/** Adds what every command needs that talks to a server. */
export function withClientOptions(command: Command): Command {
  return command
    .option("--url <url>", "the server (default: KHALA_URL, or KHALA_HOST and KHALA_PORT)")
    .option("--token <jwt>", "a token (default: KHALA_TOKEN, or the server is asked for one)");
}

/** Reads a number of things. */
export function positiveInteger(text: string): number {
  if (!/^[1-9]\d*$/.test(text)) throw new InvalidArgumentError("It is a whole number from 1 on.");
  return Number(text);
}
