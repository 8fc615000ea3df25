import { readFileSync } from "node:fs";
import { join } from "node:path";
import { Argument, Command, CommanderError } from "commander";
import { wantsStack } from "../environment.ts";
import { EXIT, explain, withStack } from "../failure.ts";
import { note, paint } from "../terminal/terminal.ts";
import { declareBoard } from "./board_commands.ts";
import { declareChat, declareClient, declareInit, declareMcp, declareServers } from "./commands.ts";
import { completionScript, SHELLS, type Shell } from "./completion.ts";
import { declareOperations } from "./operations_commands.ts";

/** Runs a command line and resolves with the exit code. An error is one line, or a stack with --verbose. */
export async function run(argv: readonly string[]): Promise<number> {
  try {
    const khala = program();
    await khala.parseAsync(upToUnknown(khala, argv), { from: "user" });
    return Number(process.exitCode ?? EXIT.ok);
  } catch (error) {
    // Commander has already printed the problem.
    if (error instanceof CommanderError) return error.exitCode === 0 ? EXIT.ok : EXIT.usage;
    const { message, exitCode } = explain(error);
    const text = wantsStack(argv) ? withStack(error) : message;
    note(`${paint("red", "khala:", process.stderr)} ${text}`);
    return exitCode;
  }
}

/** The command line, which ends at a command that does not exist: with --help behind it, Commander would print that of its parent. */
function upToUnknown(khala: Command, argv: readonly string[]): readonly string[] {
  let command = khala;
  for (const [i, name] of argv.entries()) {
    if (command === khala && name.startsWith("-")) continue;
    const isGroup = command.commands.length > 0 && command.registeredArguments.length === 0;
    if (!isGroup || name.startsWith("-") || (command === khala && name === "help")) break;
    const found = command.commands.find((known) => known.name() === name);
    if (!found) return argv.slice(0, i + 1);
    command = found;
  }
  return argv;
}

function program(): Command {
  const manifest = readFileSync(join(import.meta.dirname, "../../package.json"), "utf8");
  const { version } = JSON.parse(manifest) as { version: string };
  const khala = new Command("khala")
    .description("The real-time backbone for agent applications: run it, use it, operate it.")
    .version(version, "-V, --version", "print the version")
    .option("--verbose", "print errors with their stacks; also KHALA_LOG_LEVEL=debug")
    .exitOverride()
    .showHelpAfterError("Add --help to see its usage.");
  declareInit(khala);
  declareServers(khala);
  declareClient(khala);
  declareChat(khala);
  declareBoard(khala);
  declareMcp(khala);
  declareOperations(khala);
  declareCompletion(khala);
  khala.addHelpText(
    "after",
    `
Examples:
  khala dev                                   a server for development; prints commands to try
  khala append run hello run.started '{"title":"Hello"}'
  khala tail runtime.run_summaries            follow the documents of a topic
  khala chat "Hello"                          send a message to the engine
  khala doctor                                check this machine, and print how to fix problems

Settings come from the environment (khala config lists them); options override it.

Exit codes:
  0  done
  1  failed
  2  the command line or a setting is wrong
  3  the server or the database cannot be reached
  4  a check found a problem (doctor, parity)`,
  );
  return khala;
}

function declareCompletion(khala: Command): void {
  khala
    .command("completion")
    .description("print a script that completes commands and options in your shell")
    .addArgument(new Argument("<shell>").choices(SHELLS))
    .addHelpText(
      "after",
      `
Examples:
  eval "$(khala completion bash)"             in ~/.bashrc
  eval "$(khala completion zsh)"              in ~/.zshrc, after compinit
  khala completion fish > ~/.config/fish/completions/khala.fish`,
    )
    .action((shell: Shell) => void process.stdout.write(completionScript(shell, khala)));
}
