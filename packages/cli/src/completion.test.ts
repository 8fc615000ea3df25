import { execFileSync } from "node:child_process";
import { Command } from "commander";
import { describe, expect, test } from "vitest";
import { completionScript, SHELLS } from "./completion.ts";

function khala(): Command {
  const program = new Command("khala").option("--verbose", "tell errors with their stacks");
  program.command("dev").description("it's for development").option("--port <port>", "where: it listens");
  const dlq = program.command("dlq").description("dead letters");
  dlq.command("replay").description("run one again").option("--json", "as JSON");
  dlq.command("replay-all").description("run all again");
  program.command("secret", { hidden: true });
  return program;
}

/** What bash offers for the words, the last of them unfinished. */
function offered(...words: string[]): string[] {
  const line = ["khala", ...words].map((word) => `'${word}'`).join(" ");
  const script = `${completionScript("bash", khala())}
COMP_WORDS=(${line}); COMP_CWORD=${words.length}; _khala; printf '%s\\n' "\${COMPREPLY[@]}"`;
  return execFileSync("bash", ["-c", script], { encoding: "utf8" }).split("\n").filter(Boolean);
}

describe("in bash", () => {
  test("commands are completed, but for hidden ones", () => {
    expect(offered("d")).toEqual(["dev", "dlq"]);
    expect(offered("s")).toEqual([]);
  });
  test("commands of a command are completed", () => {
    expect(offered("dlq", "re")).toEqual(["replay", "replay-all"]);
  });
  test("options are those of the command, also after arguments of it", () => {
    expect(offered("dlq", "replay", "reviewer", "--j")).toEqual(["--json"]);
    expect(offered("dev", "--p")).toEqual(["--port"]);
    expect(offered("--v")).toEqual(["--verbose"]);
  });
});

test.for(SHELLS)("the script for %s names every command", (shell) => {
  const script = completionScript(shell, khala());
  for (const word of ["dev", "dlq", "replay-all"]) expect(script).toContain(word);
  expect(script).not.toContain("secret");
});
