import type { Command } from "commander";
import { positiveInteger, withClientOptions, withServerOptions } from "./options.ts";

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
