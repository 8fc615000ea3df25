import { Dialog } from "@base-ui/react/dialog";
import type { KhalaClient } from "@khala/client";
import { useKhala } from "@khala/client/react";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { type KeyboardEvent, useEffect, useId, useMemo, useRef, useState } from "react";
import { links, navigate, PAGES } from "./router.ts";
import { useSession } from "./session.tsx";
import { useTheme } from "./theme.ts";
import { Icon, type IconName } from "./ui/controls/icons.tsx";
import { shortenMiddle } from "./ui/format/id.tsx";
import { plural } from "./ui/format/numbers.ts";
import { useDebounced } from "./ui/hooks.ts";

/** Something to open, or to do. */
interface Command {
  readonly id: string;
  readonly label: string;
  readonly hint?: string;
  readonly icon: IconName;
  readonly href?: string;
  readonly run?: () => void;
}

/** How long typing must rest before the server is asked. */
const DEBOUNCE_MS = 120;
const MAX_PER_GROUP = 8;
const MAX_FETCHED = 6;

/** ⌘K: searches all pages and their data. */
export function CommandPalette(props: { readonly open: boolean; readonly onClose: () => void }) {
  return (
    <Dialog.Root open={props.open} onOpenChange={(open) => !open && props.onClose()}>
      <Dialog.Portal>
        <Dialog.Backdrop className="scrim" />
        <Dialog.Popup className="palette" aria-label="Search">
          <Search onClose={props.onClose} />
        </Dialog.Popup>
      </Dialog.Portal>
    </Dialog.Root>
  );
}

function Search({ onClose }: { readonly onClose: () => void }) {
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const { groups, hasFailed, isSearching } = useResults(text.trim());
  const id = useId();
  const list = useRef<HTMLDivElement>(null);
  const commands = groups.flatMap((group) => group.commands);
  const index = Math.min(at, commands.length - 1);
  const current = commands[index];

  const take = ({ run, href }: Command) => {
    onClose();
    run?.();
    if (href !== undefined) navigate(href);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    if (!current || (step === 0 && event.key !== "Enter")) return;
    event.preventDefault();
    if (step === 0) take(current);
    else setAt((index + step + commands.length) % commands.length);
  };
  // biome-ignore lint/correctness/useExhaustiveDependencies: runs when another command is current.
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
          aria-label="Search"
          autoComplete="off"
          spellCheck={false}
          // biome-ignore lint/a11y/noAutofocus: the palette was opened to type.
          autoFocus
          placeholder="Search documents, conversations, artifacts, agents and pages…"
          value={text}
          onChange={(event) => {
            setText(event.target.value);
            setAt(0);
          }}
          onKeyDown={onKeyDown}
        />
        {isSearching && <Icon name="working" />}
      </div>
      <div ref={list} id={id} role="listbox" aria-label="Results" className="palette-list">
        {groups.map((group) => (
          <div key={group.name} role="group" aria-label={group.name}>
            <div className="palette-group" aria-hidden="true">
              {group.name}
            </div>
            {group.commands.map((command) => (
              // biome-ignore lint/a11y/useFocusableInteractive: the focus stays in the input.
              // biome-ignore lint/a11y/useKeyWithClickEvents: the input handles keys.
              <div
                key={command.id}
                id={`${id}-${command.id}`}
                role="option"
                className="palette-option"
                aria-selected={command === current}
                onPointerMove={() => setAt(commands.indexOf(command))}
                onClick={() => take(command)}
              >
                <Icon name={command.icon} />
                <span className="palette-label">{command.label}</span>
                {command.hint && <span className="palette-hint">{command.hint}</span>}
              </div>
            ))}
          </div>
        ))}
      </div>
      {commands.length === 0 && !isSearching && <p className="palette-none">No results</p>}
      {hasFailed && <p className="palette-none">Some sources could not be searched.</p>}
      <span className="visually-hidden" role="status">
        {isSearching ? "" : plural(commands.length, "result")}
      </span>
    </>
  );
}

function useResults(text: string) {
  const khala = useKhala();
  const { changeToken } = useSession();
  const [theme, nextTheme] = useTheme();
  const query = useDebounced(text, text === "" ? 0 : DEBOUNCE_MS);
  const actions = useMemo(
    (): readonly Command[] => [
      { id: "theme", label: "Switch theme", hint: `Theme: ${theme}`, icon: "moon", run: nextTheme },
      { id: "token", label: "Use another token", icon: "key", run: changeToken },
    ],
    [theme, nextTheme, changeToken],
  );
  const { data, isPlaceholderData } = useQuery({
    queryKey: ["search", query],
    queryFn: () => search(khala, query),
    placeholderData: keepPreviousData,
  });
  const matching = actions.filter(({ label }) => includes(label, query));
  return {
    groups: [...(data?.groups ?? []), { name: "Actions", commands: matching }].filter(
      ({ commands }) => commands.length > 0,
    ),
    hasFailed: data?.hasFailed === true,
    isSearching: data === undefined || isPlaceholderData || query !== text,
  };
}

const SOURCES = [
  { name: "Pages", find: async (_, query) => COMMANDS.filter(({ label }) => includes(label, query)) },
  { name: "Documents", find: findDocuments },
  { name: "Conversations", find: findConversations },
  { name: "Agents", find: findAgents },
  { name: "Artifacts", find: findArtifacts },
] satisfies readonly {
  readonly name: string;
  readonly find: (khala: KhalaClient, query: string) => Promise<readonly Command[]>;
}[];

const COMMANDS: readonly Command[] = [
  { id: "home", label: "Home", icon: "home", href: PAGES.home },
  { id: "sync", label: "Sync", icon: "sync", href: PAGES.sync },
  { id: "conversations", label: "Conversations", icon: "conversations", href: PAGES.conversations },
  { id: "blackboard", label: "Blackboard", icon: "blackboard", href: PAGES.blackboard },
  { id: "operations", label: "Operations", icon: "operations", href: PAGES.operations },
  { id: "docs", label: "Docs", icon: "docs", href: PAGES.docs },
  { id: "parity", label: "Sync · parity", icon: "sync", href: links.parity() },
  { id: "dead", label: "Blackboard · dead letters", icon: "blackboard", href: links.deadLetters() },
  { id: "sockets", label: "Operations · sockets", icon: "operations", href: links.sockets() },
  { id: "closes", label: "Operations · closed sockets", icon: "operations", href: links.closes() },
  { id: "errors", label: "Operations · errors by code", icon: "operations", href: links.errors() },
  { id: "runs", label: "Operations · failed runs", icon: "operations", href: links.failedRuns() },
  { id: "traces", label: "Operations · traces", icon: "operations", href: links.traces() },
  { id: "config", label: "Operations · settings", icon: "operations", href: links.config() },
];

const includes = (text: string | undefined, query: string) =>
  (text ?? "").toLowerCase().includes(query.toLowerCase());

async function search(khala: KhalaClient, query: string) {
  const answers = await Promise.allSettled(SOURCES.map(({ find }) => find(khala, query)));
  return {
    groups: answers.map((answer, index) => ({
      name: SOURCES[index]!.name,
      commands: answer.status === "fulfilled" ? answer.value.slice(0, MAX_PER_GROUP) : [],
    })),
    hasFailed: answers.some(({ status }) => status === "rejected"),
  };
}

async function findDocuments({ ops }: KhalaClient, query: string): Promise<readonly Command[]> {
  if (query.length < 2) return [];
  const { topics = [] } = await ops.topics();
  const found = await Promise.allSettled(
    topics.map(async ({ topic = "" }) => {
      const { documents = [] } = await ops.documents({ topic, search: query, limit: MAX_FETCHED });
      return documents.map(({ doc_key = "" }): Command => {
        const href = links.document(topic, doc_key);
        return { id: `doc-${doc_key}`, label: doc_key, hint: topic, icon: "sync", href };
      });
    }),
  );
  // A topic that the token does not allow has no results.
  return found.flatMap((answer) => (answer.status === "fulfilled" ? answer.value : [])).slice(0, MAX_FETCHED);
}

async function findConversations(khala: KhalaClient, query: string): Promise<readonly Command[]> {
  const { conversations = [] } = await khala.conversations.list({ limit: 100 });
  return conversations
    .filter(({ conv_id, title }) => includes(conv_id, query) || includes(title, query))
    .slice(0, MAX_FETCHED)
    .map(({ conv_id = "", title }) => ({
      id: `conv-${conv_id}`,
      label: title || conv_id,
      hint: shortenMiddle(conv_id, 14),
      icon: "conversations",
      href: links.conversation(conv_id),
    }));
}

async function findAgents({ board }: KhalaClient, query: string): Promise<readonly Command[]> {
  const { agents = [] } = await board.agents();
  return agents
    .filter(({ name }) => includes(name, query))
    .slice(0, MAX_FETCHED)
    .map(({ name = "", state = "" }) => ({
      id: `agent-${name}`,
      label: name,
      hint: state,
      icon: "blackboard",
      href: links.agent(name),
    }));
}

async function findArtifacts({ board }: KhalaClient, query: string): Promise<readonly Command[]> {
  if (query.length < 2) return [];
  const { artifacts = [] } = await board.artifacts({ limit: 500 });
  return artifacts
    .filter(({ id, type, correlation_id }) =>
      [id, type, correlation_id].some((text) => includes(text, query)),
    )
    .slice(0, MAX_FETCHED)
    .map(({ id = "", type = "" }) => ({
      id: `artifact-${id}`,
      label: type,
      hint: shortenMiddle(id, 18),
      icon: "blackboard",
      href: links.artifact(id),
    }));
}
