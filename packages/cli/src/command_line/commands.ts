import { type Command, Option } from "commander";
import { EXIT, Failure } from "../failure.ts";
import { positiveInteger, withClientOptions, withServerOptions } from "./options.ts";

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
    .description("chat with the engine of a server, in a conversation that every device can follow")
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
failed; a chat on a terminal goes on.

Examples:
  khala chat How is the weather in Oslo?
  khala chat --conv trip                      reads lines from the terminal; Ctrl-D ends it
  khala chat --json --policy queue "And tomorrow?" | jq -r .text`,
    )
    .action(async (words, options) => (await import("../commands/chat.ts")).chat(words, options));
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
