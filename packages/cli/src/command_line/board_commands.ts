import type { Command } from "commander";
import { positiveInteger, withClientOptions } from "./options.ts";

/** `khala approvals`: pending approvals, in conversations and on the board. */
function declareApprovals(khala: Command): void {
  const approvals = withClientOptions(khala.command("approvals"))
    .description("list pending approvals: tool calls of conversations, and tasks of the board")
    .option("--json", "one JSON object per line")
    .addHelpText(
      "after",
      `
Examples:
  khala approvals
  khala approvals approve c1/call_7
  khala approvals deny 0199d3a0-8a51-7c3e-9f00-5a4f0c1d2e3f --reason "Too much"`,
    )
    .action(async (options) => (await import("../commands/approvals.ts")).approvals(options));
  for (const what of ["approve", "deny"] as const) {
    withClientOptions(approvals.command(what))
      .description(what === "approve" ? "approve one" : "deny one")
      .argument("<id>", "the id, from the list")
      .option("--reason <text>", "why")
      .option("--json", "print id and decision")
      .action(async (id, _, command: Command) =>
        (await import("../commands/approvals.ts")).decide(what === "approve", id, command.optsWithGlobals()),
      );
  }
}

/** The blackboard: publishing, agents, dead letters. */
export function declareBoard(khala: Command): void {
  withClientOptions(khala.command("publish"))
    .description("publish an artifact on the blackboard")
    .argument("<type>", "the type of the artifact, such as Draft")
    .option("--payload <json>", "the payload as JSON, @file, or - for stdin", "{}")
    .option("--id <uuid>", "your own id; repeating the command with it publishes nothing twice")
    .option("--key <key>", "artifacts with the same key stay in order (partition_key)")
    .option("--correlation <id>", "the correlation that it belongs to (correlation_id)")
    .option("--tag <tag...>", "tags that agents filter by")
    .option("--at <time>", "publish at this time, such as 2026-12-24T18:00:00Z (not_before)")
    .option("--json", "print id and status")
    .addHelpText(
      "after",
      `
Examples:
  khala publish Draft --payload '{"text":"Hello"}' --correlation request-1
  jq -n '{text:"Hello"}' | khala publish Draft --payload - --tag urgent
  khala publish Report --payload @report.json --at 2026-12-24T18:00:00Z`,
    )
    .action(async (type, options) => (await import("../commands/board/publish.ts")).publish(type, options));

  const agents = withClientOptions(khala.command("agents"))
    .description("list the agents of the blackboard: their state, their counts, what they consume")
    .option("--json", "as JSON")
    .addHelpText(
      "after",
      `
Examples:
  khala agents
  khala agents pause reviewer      starts no new tasks, on any server
  khala agents resume reviewer
  khala agents cancel reviewer     cancels running tasks; queued ones become dead letters`,
    )
    .action(async (options) => (await import("../commands/board/board.ts")).agents(options));
  const does = {
    pause: "pause an agent: it starts no new tasks",
    resume: "resume a paused agent",
    cancel: "cancel an agent's running tasks, and move its queued ones to the dead letters",
  };
  for (const what of ["pause", "resume", "cancel"] as const) {
    withClientOptions(agents.command(what))
      .description(does[what])
      .argument("<agent>", "the agent's name")
      .option("--json", "print agent and state")
      .action(async (agent, _, command: Command) =>
        (await import("../commands/board/board.ts")).control(what, agent, command.optsWithGlobals()),
      );
  }
  withClientOptions(khala.command("lag"))
    .description("show how far behind the board's readers are, by partition")
    .option("--json", "one JSON object per line")
    .action(async (options) => (await import("../commands/board/board.ts")).lag(options));
  declareArtifacts(khala);
  declareCorrelations(khala);
  declareApprovals(khala);
  declareDeadLetters(khala);

  khala
    .command("worker")
    .description("run an app's agents in a separate process, without a server")
    .option("--app <file>", "the app: a file with a default export made by defineApp")
    .option(
      "--data-dir <folder>",
      "folder of a running server's embedded PostgreSQL, if DATABASE_URL is not set",
    )
    .option("--log-level <level>", "KHALA_LOG_LEVEL")
    .addHelpText(
      "after",
      `
Any number of workers and servers share the tasks. All must run the same app. Servers with KHALA_BOARD_AGENTS=false leave
the work to workers. Ctrl-C finishes running tasks and releases the others.

With KHALA_WORKER_PORT it serves /metrics, /healthz and /readyz on that port of KHALA_HOST. Without it there are no metrics of its
agents.

Examples:
  DATABASE_URL=postgres://… khala worker --app app.ts
  DATABASE_URL=postgres://… KHALA_WORKER_PORT=4100 khala worker --app app.ts`,
    )
    .action(async (options) => (await import("../commands/board/worker.ts")).worker(options));
}

function declareArtifacts(khala: Command): void {
  const artifacts = withClientOptions(khala.command("artifacts"))
    .description("list the newest artifacts of the blackboard")
    .option("--type <type>", "only of this type")
    .option("--correlation <id>", "only those of this correlation")
    .option("--limit <n>", "at most this many, up to 1000 (default: 20)", positiveInteger)
    .option("--json", "one JSON object per line")
    .addHelpText(
      "after",
      `
Lists the newest FLOCK_INDEX_WINDOW artifacts at most.

Examples:
  khala artifacts --type Draft
  khala artifacts show 0199d3a0-8a51-7c3e-9f00-5a4f0c1d2e3f`,
    )
    .action(async (options) => (await import("../commands/board/artifacts.ts")).artifacts(options));
  withClientOptions(artifacts.command("show"))
    .description("show the latest version of one")
    .argument("<id>", "its id")
    .option("--json", "on one line")
    .action(async (id, _, command: Command) =>
      (await import("../commands/board/artifacts.ts")).showArtifact(id, command.optsWithGlobals()),
    );
}

function declareCorrelations(khala: Command): void {
  const load = () => import("../commands/board/correlations.ts");
  const correlations = withClientOptions(khala.command("correlations"))
    .description("list correlations, the last changed first: all artifacts and tasks of one request")
    .option("--limit <n>", "at most this many (default: 20)", positiveInteger)
    .option("--json", "one JSON object per line")
    .addHelpText(
      "after",
      `
With more than 10,000 correlations, only the first 10,000 by name are searched.

Examples:
  khala correlations
  khala correlations show request-1
  khala correlations pause request-1       its tasks wait, on all servers
  khala correlations resume request-1      lifts a pause, or a cancellation and replays its dead letters
  khala correlations cancel request-1      cancels its open tasks`,
    )
    .action(async (options) => (await load()).correlations(options));
  const one = (name: string, description: string) =>
    withClientOptions(correlations.command(name))
      .description(description)
      .argument("<id>", "the correlation_id")
      .option("--json", "as JSON");
  one("show", "show the state of one, and what it waits for").action(async (id, _, command: Command) =>
    (await load()).showCorrelation(id, command.optsWithGlobals()),
  );
  for (const what of ["pause", "cancel"] as const)
    one(
      what,
      what === "pause" ? "pause one: its tasks wait" : "cancel one: its open tasks become dead letters",
    ).action(async (id, _, command: Command) =>
      (await load()).controlCorrelation(what, id, command.optsWithGlobals()),
    );
  one("resume", "lift a pause, or a cancellation and replay its dead letters").action(
    async (id, _, command: Command) => (await load()).resumeCorrelation(id, command.optsWithGlobals()),
  );
}

function declareDeadLetters(khala: Command): void {
  const dlq = khala
    .command("dlq")
    .description("list, show and replay dead letters: tasks that failed for good")
    .addHelpText(
      "after",
      `
Examples:
  khala dlq list reviewer
  khala dlq show reviewer 0198c5f4-…
  khala dlq replay reviewer 0198c5f4-… --payload '{"text":"fixed"}'
  khala dlq replay-all reviewer --correlation request-1`,
    );

  withClientOptions(dlq.command("list"))
    .description("list them, newest first")
    .argument("<agent>", "the agent's name")
    .option("--limit <n>", "at most this many (default: 20)", positiveInteger)
    .option("--correlation <id>", "only those of this correlation")
    .option("--json", "one JSON object per line")
    .action(async (agent, options) =>
      (await import("../commands/board/dlq.ts")).listDeadLetters(agent, options),
    );

  withClientOptions(dlq.command("show"))
    .description("show one: its error, its stack, its artifacts")
    .argument("<agent>", "the agent's name")
    .argument("<id>", "the id of the dead letter")
    .option("--json", "as JSON")
    .action(async (agent, id, options) =>
      (await import("../commands/board/dlq.ts")).showDeadLetter(agent, id, options),
    );

  withClientOptions(dlq.command("replay"))
    .description("replay some; repeating the command does not run them twice")
    .argument("<agent>", "the agent's name")
    .argument("<ids...>", "ids of dead letters")
    .option("--payload <json>", "replaces the artifact's payload: JSON, @file, or - for stdin")
    .option("--json", "one JSON object per line")
    .action(async (agent, ids, options) =>
      (await import("../commands/board/dlq.ts")).replayDeadLetters(agent, ids, options),
    );

  withClientOptions(dlq.command("replay-all"))
    .description("replay all of them")
    .argument("<agent>", "the agent's name")
    .option("--correlation <id>", "only those of this correlation")
    .option("--json", "print the counts")
    .addHelpText(
      "after",
      "\nWorks page by page. Ctrl-C stops it; dead letters replayed so far stay replayed.",
    )
    .action(async (agent, options) =>
      (await import("../commands/board/dlq.ts")).replayAllDeadLetters(agent, options),
    );
}
