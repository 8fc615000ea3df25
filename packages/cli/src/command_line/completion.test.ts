import { execFileSync, spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Command } from "commander";
import { afterAll, describe, expect, test } from "vitest";
import { completionScript, SHELLS } from "./completion.ts";

function khala(): Command {
  const program = new Command("khala").option("--verbose", "print errors with their stacks");
  program.command("dev").description("it's for development").option("--port <port>", "where: it listens");
  const dlq = program.command("dlq").description("dead letters");
  dlq.command("replay").description("run one again").option("--json", "as JSON");
  dlq.command("replay-all").description("run all again");
  program.command("secret", { hidden: true });
  return program;
}

// With nothing in it: where there is nothing else to offer, shells offer files.
const folder = mkdtempSync(join(tmpdir(), "khala-completion-"));
const scripts = mkdtempSync(join(tmpdir(), "khala-completion-"));
afterAll(() => {
  for (const path of [folder, scripts]) rmSync(path, { recursive: true });
});

function file(name: string, content: string): string {
  writeFileSync(join(scripts, name), content);
  return join(scripts, name);
}

function run(shell: string, ...args: string[]): string[] {
  const options = { encoding: "utf8", cwd: folder, timeout: 30_000 } as const;
  return execFileSync(shell, args, options).split(/\r?\n/);
}

/** The completions of a shell for the words, the last of them unfinished. */
type Offered = (...words: string[]) => string[];

const bash: Offered = (...words) => {
  const line = ["khala", ...words].map((word) => `'${word}'`).join(" ");
  const script = `${completionScript("bash", khala())}
COMP_WORDS=(${line}); COMP_CWORD=${words.length}; _khala; printf '%s\\n' "\${COMPREPLY[@]}"`;
  return run("bash", "-c", script).filter(Boolean);
};

const fish: Offered = (...words) => {
  const line = ["khala", ...words].join(" ");
  const script = file("khala.fish", completionScript("fish", khala()));
  const offers = run("fish", "--no-config", "-c", `source '${script}'; complete -C '${line}'`);
  return offers.filter(Boolean).map((offer) => offer.split("\t")[0]!);
};

/** zsh completes on a terminal only: an interactive one is started on a terminal of its own, and prints its completions. */
const zsh =
  (load: (script: string) => string): Offered =>
  (...words) => {
    const inside = file(
      "inside.zsh",
      `autoload -Uz compinit
${load(file("_khala", completionScript("zsh", khala())))}
bindkey "^I" complete-word
compadd() {
  if [[ \${@[1,(i)(-|--)]} == *-(O|A|D)\\ * ]]; then builtin compadd "$@"; return; fi
  local -a found
  builtin compadd -A found "$@"
  print -rl -- "offer "\${^found}
  builtin compadd "$@"
}
finish() { print; print end; exit }
comppostfuncs=(finish)`,
    );
    const terminal = `zmodload zsh/zpty
zpty terminal zsh -f -i
zpty -w terminal 'source ${inside}'
zpty -w -n terminal '${["khala", ...words].join(" ")}'$'\\t'
while zpty -r terminal line; do print -r -- $line; [[ $line == end* ]] && break; done`;
    const said = run("zsh", "-f", "-c", terminal);
    return said.flatMap((line) => /offer (\S+)/.exec(line)?.[1] ?? []);
  };

const WAYS: readonly [name: string, shell: string, offered: Offered][] = [
  ["bash", "bash", bash],
  ["zsh, evaluated", "zsh", zsh((script) => `compinit -u -D; eval "$(<${script})"`)],
  ["zsh, from a folder of fpath", "zsh", zsh(() => `fpath=(${scripts} $fpath); compinit -u -D`)],
  ["fish", "fish", fish],
];

for (const [name, shell, offered] of WAYS) {
  const missing = spawnSync(shell, ["--version"]).error !== undefined;
  if (missing) console.warn(`SKIPPED: completion in ${shell}, because it is not installed.`);
  describe.skipIf(missing)(`in ${name}`, () => {
    test("completes commands, except hidden ones", () => {
      expect(offered("d")).toEqual(["dev", "dlq"]);
      expect(offered("s")).toEqual([]);
    });
    test("completes subcommands", () => {
      expect(offered("dlq", "re")).toEqual(["replay", "replay-all"]);
    });
    test("completes the options of the command, also after its arguments", () => {
      expect(offered("dlq", "replay", "reviewer", "--j")).toEqual(["--json"]);
      expect(offered("dev", "--p")).toEqual(["--port"]);
      expect(offered("--v")).toEqual(["--verbose"]);
    });
    test("does not take an argument for a command of the same name", () => {
      expect(offered("dlq", "replay", "dev", "--p")).toEqual([]);
      expect(offered("dev", "dlq", "re")).toEqual([]);
    });
  });
}

test.for(SHELLS)("the script for %s names every command", (shell) => {
  const script = completionScript(shell, khala());
  for (const word of ["dev", "dlq", "replay-all"]) expect(script).toContain(word);
  expect(script).not.toContain("secret");
});
