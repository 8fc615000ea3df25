import type { Command } from "commander";

/** The shells that `khala completion` knows. */
export const SHELLS = ["bash", "zsh", "fish"] as const;

/** A shell of the list. */
export type Shell = (typeof SHELLS)[number];

/** A command for a shell: its path, and the words that may follow. */
interface CommandWords {
  readonly path: readonly string[];
  readonly words: readonly { readonly word: string; readonly about: string }[];
}

/** A script that completes commands and options in a shell; generated from the declared commands. */
export function completionScript(shell: Shell, khala: Command): string {
  const places = placesOf(khala);
  return { bash: bash(places), zsh: zsh(places), fish: fish(places) }[shell];
}

function placesOf(command: Command, path: readonly string[] = []): CommandWords[] {
  const help = command.createHelp();
  const commands = help.visibleCommands(command).filter((each) => each.name() !== "help");
  const words = [
    ...commands.map((each) => ({ word: each.name(), about: each.description() })),
    ...help.visibleOptions(command).map((option) => ({
      word: option.long ?? option.short ?? "",
      about: option.description,
    })),
  ].filter(({ word }) => word !== "");
  return [{ path, words }, ...commands.flatMap((each) => placesOf(each, [...path, each.name()]))];
}

/** Single-quoted for a POSIX shell. */
function quoted(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

/** The longest chain of commands among the words so far decides what comes next. */
function walk(places: readonly CommandWords[], found: string): string {
  const chains = places.filter(({ path }) => path.length > 0).map(({ path }) => path.join(" "));
  return `  local word place="" next
  for word in "\${${found}[@]}"; do
    next="\${place:+$place }$word"
    case "$next" in
      ${chains.map((chain) => `${quoted(chain)}) place="$next" ;;`).join("\n      ")}
    esac
  done`;
}

function bash(places: readonly CommandWords[]): string {
  const cases = places.map(
    ({ path, words }) =>
      `    ${quoted(path.join(" "))}) words=${quoted(words.map(({ word }) => word).join(" "))} ;;`,
  );
  return `# khala for bash: eval "$(khala completion bash)" in ~/.bashrc
_khala() {
  local words="" before=("\${COMP_WORDS[@]:1:COMP_CWORD-1}")
${walk(places, "before")}
  case "$place" in
${cases.join("\n")}
  esac
  COMPREPLY=($(compgen -W "$words" -- "\${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _khala khala
`;
}

function zsh(places: readonly CommandWords[]): string {
  const cases = places.map(({ path, words }) => {
    const described = words.map(({ word, about }) => quoted(`${word}:${about.replaceAll(":", "\\:")}`));
    return `    ${quoted(path.join(" "))}) choices=(${described.join(" ")}) ;;`;
  });
  return `#compdef khala
# khala for zsh: eval "$(khala completion zsh)" in ~/.zshrc, after compinit; or a file _khala in a folder of fpath
_khala() {
  local -a choices before
  before=("\${(@)words[2,CURRENT-1]}")
${walk(places, "before")}
  case "$place" in
${cases.join("\n")}
  esac
  _describe khala choices || _files
}
# Loaded from fpath, this file is the function itself, and is called to complete.
if [[ "\${funcstack[1]}" == _khala ]]; then _khala "$@"; else compdef _khala khala; fi
`;
}

function fish(places: readonly CommandWords[]): string {
  const chains = places.filter(({ path }) => path.length > 0).map(({ path }) => quoted(path.join(" ")));
  const lines = places.flatMap(({ path, words }) =>
    words.map(({ word, about }) => {
      const what = word.startsWith("--") ? `-l ${word.slice(2)}` : `-a ${word}`;
      const condition = quoted(`__khala_at "${path.join(" ")}"`);
      return `complete -c khala -n ${condition} ${what} -d ${quoted(about)}`;
    }),
  );
  return `# khala for fish: khala completion fish > ~/.config/fish/completions/khala.fish
function __khala_at
    set -l place ""
    for word in (commandline -opc)[2..-1]
        set -l next (string trim -- "$place $word")
        switch $next
            case ${chains.join(" ")}
                set place $next
        end
    end
    test "$place" = "$argv[1]"
end
${lines.join("\n")}
`;
}
