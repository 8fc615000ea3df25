import { type FormEvent, useState } from "react";
import { Ago } from "../parts/ago.tsx";
import { Button } from "../parts/button.tsx";
import { Icon } from "../parts/icons.tsx";
import { Empty } from "../parts/states.tsx";
import { Toolbar } from "../parts/toolbar.tsx";
import { links, setParams } from "../router.ts";
import { boardWords } from "../strings/blackboard.ts";
import type { Artifact } from "./board_types.ts";

const words = boardWords.timeline;
const SHOWN = 50;

/** Where to begin: a correlation by its id, or one of the recent ones. */
export function CorrelationChooser({ artifacts }: { readonly artifacts: readonly Artifact[] }) {
  const [text, setText] = useState("");
  const recent = recentCorrelations(artifacts);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (text.trim() !== "") setParams({ correlation: text.trim(), tab: "" });
  };
  return (
    <>
      <form onSubmit={submit}>
        <Toolbar
          label={words.choose}
          end={
            <Button type="submit" disabled={text.trim() === ""}>
              {words.show}
            </Button>
          }
        >
          <div className="filter search">
            <Icon name="search" />
            <input
              type="search"
              aria-label={words.choose}
              placeholder={words.chooseHint}
              value={text}
              spellCheck={false}
              autoComplete="off"
              onChange={(event) => setText(event.target.value)}
            />
          </div>
        </Toolbar>
      </form>
      {recent.length === 0 ? (
        <Empty title={words.emptyTitle} icon="blackboard">
          <p>{words.emptyText}</p>
          <p>{words.nothingRecent}</p>
        </Empty>
      ) : (
        <section className="correlation-recent">
          <h2>{words.recent}</h2>
          <ul>
            {recent.map(({ id, types, at }) => (
              <li key={id}>
                <a className="artifact-link" href={links.correlation(id)}>
                  <strong className="mono">{id}</strong>
                  <span className="quiet">{types.join(" → ")}</span>
                  <Ago at={at} />
                </a>
              </li>
            ))}
          </ul>
        </section>
      )}
    </>
  );
}

interface Recent {
  readonly id: string;
  /** Oldest first. */
  readonly types: readonly string[];
  readonly at: string;
}

function recentCorrelations(artifacts: readonly Artifact[]): readonly Recent[] {
  const groups = Map.groupBy(
    artifacts.filter(({ correlation_id }) => correlation_id !== ""),
    ({ correlation_id }) => correlation_id,
  );
  return [...groups].slice(0, SHOWN).map(([id, group]) => ({
    id,
    types: [...new Set(group.map(({ type }) => type).reverse())],
    at: group[0]!.created_at,
  }));
}
