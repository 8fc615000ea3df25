import { Dialog as Base } from "@base-ui/react/dialog";
import { type KeyboardEvent, useEffect, useId, useRef, useState } from "react";
import { navigate } from "../router.ts";
import { partWords } from "../strings/parts.ts";
import { Icon, type IconName } from "./icons.tsx";

/** Something to go to, or to do. */
export interface Command {
  readonly id: string;
  readonly label: string;
  readonly hint?: string;
  readonly icon?: IconName;
  readonly href?: string;
  readonly run?: () => void;
}

/** A place that is searched. Its answers come as one group. */
export interface CommandSource {
  readonly group: string;
  readonly find: (query: string, signal: AbortSignal) => readonly Command[] | Promise<readonly Command[]>;
}

export interface CommandPaletteProps {
  readonly open: boolean;
  readonly onClose: () => void;
  readonly sources: readonly CommandSource[];
}

/** How long typing must rest before the server is asked. */
const REST_MS = 120;
const MOST = 8;

/** ⌘K: finds things in all rooms. */
export function CommandPalette({ open, onClose, sources }: CommandPaletteProps) {
  return (
    <Base.Root open={open} onOpenChange={(next) => !next && onClose()}>
      <Base.Portal>
        <Base.Backdrop className="scrim" />
        <Base.Popup className="palette" aria-label={partWords.paletteTitle}>
          <Search sources={sources} onClose={onClose} />
        </Base.Popup>
      </Base.Portal>
    </Base.Root>
  );
}

interface Group {
  readonly name: string;
  readonly commands: readonly Command[];
}

function Search({
  sources,
  onClose,
}: {
  readonly sources: readonly CommandSource[];
  readonly onClose: () => void;
}) {
  const [query, setQuery] = useState("");
  const [at, setAt] = useState(0);
  const { groups, hasFailed, isSearching } = useFound(query.trim(), sources);
  const id = useId();
  const list = useRef<HTMLDivElement>(null);
  const commands = groups.flatMap((group) => group.commands);
  const current = commands[Math.min(at, commands.length - 1)];

  const take = (command: Command) => {
    onClose();
    command.run?.();
    if (command.href !== undefined) navigate(command.href);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    if (step !== 0 && commands.length > 0) {
      event.preventDefault();
      setAt((Math.min(at, commands.length - 1) + step + commands.length) % commands.length);
    } else if (event.key === "Enter" && current) {
      event.preventDefault();
      take(current);
    }
  };
  // biome-ignore lint/correctness/useExhaustiveDependencies: whenever another one is current.
  useEffect(() => {
    list.current?.querySelector("[aria-selected=true]")?.scrollIntoView({ block: "nearest" });
  }, [current?.id]);

  return (
    <>
      <div className="palette-line">
        <Icon name="search" />
        <input
          type="text"
          role="combobox"
          aria-expanded={commands.length > 0}
          aria-controls={id}
          aria-activedescendant={current && `${id}-${current.id}`}
          aria-label={partWords.paletteTitle}
          autoComplete="off"
          spellCheck={false}
          // biome-ignore lint/a11y/noAutofocus: the palette was opened to type.
          autoFocus
          placeholder={partWords.palettePlaceholder}
          value={query}
          onChange={(event) => {
            setQuery(event.target.value);
            setAt(0);
          }}
          onKeyDown={onKeyDown}
        />
        {isSearching && <Icon name="working" />}
      </div>
      <div ref={list} id={id} role="listbox" aria-label={partWords.paletteTitle} className="palette-list">
        {groups.map((group) => (
          <div key={group.name} role="group" aria-label={group.name}>
            <div className="palette-group" aria-hidden="true">
              {group.name}
            </div>
            {group.commands.map((command) => (
              // biome-ignore lint/a11y/useFocusableInteractive: the focus stays in the input.
              // biome-ignore lint/a11y/useKeyWithClickEvents: keys are the input's.
              <div
                key={command.id}
                id={`${id}-${command.id}`}
                role="option"
                className="palette-option"
                aria-selected={command === current}
                onPointerMove={() => setAt(commands.indexOf(command))}
                onClick={() => take(command)}
              >
                {command.icon && <Icon name={command.icon} />}
                <span className="palette-label">{command.label}</span>
                {command.hint && <span className="palette-hint">{command.hint}</span>}
              </div>
            ))}
          </div>
        ))}
      </div>
      {commands.length === 0 && !isSearching && <p className="palette-none">{partWords.paletteEmpty}</p>}
      {hasFailed && <p className="palette-none">{partWords.paletteFailed}</p>}
      <span className="visually-hidden" role="status">
        {isSearching ? "" : partWords.results(commands.length)}
      </span>
    </>
  );
}

function useFound(query: string, sources: readonly CommandSource[]) {
  const [found, setFound] = useState<{ query?: string; groups: readonly Group[]; hasFailed: boolean }>({
    groups: [],
    hasFailed: false,
  });
  useEffect(() => {
    const abort = new AbortController();
    const timer = setTimeout(
      async () => {
        const answers = await Promise.allSettled(
          sources.map(async ({ find }) => await find(query, abort.signal)),
        );
        if (abort.signal.aborted) return;
        const groups = answers.flatMap((answer, index) =>
          answer.status === "fulfilled" && answer.value.length > 0
            ? [{ name: sources[index]!.group, commands: answer.value.slice(0, MOST) }]
            : [],
        );
        setFound({ query, groups, hasFailed: answers.some((answer) => answer.status === "rejected") });
      },
      query === "" ? 0 : REST_MS,
    );
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [query, sources]);
  return { groups: found.groups, hasFailed: found.hasFailed, isSearching: found.query !== query };
}
