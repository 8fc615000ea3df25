import type { App } from "../data/app.ts";
import { links, PAGES } from "../router.ts";
import { DocsLink } from "../ui/feedback/docs_link.tsx";
import { plural } from "../ui/format/numbers.ts";
import "./app_summary.css";

const SHOWN = 6;

/** What this server serves: its models, its agents and its engine, each with the way to the next one. */
export function AppSummary({ app }: { readonly app: App }) {
  if (!app.isKnown) return null;
  const { models, agents, hasEngine } = app;
  // The others come with every app that has agents.
  const own = models.filter(({ topic }) => !/^(blackboard\.|approvals$)/.test(topic));
  return (
    <section className="card app-summary" aria-label="This app">
      <dl>
        <div>
          <dt>{plural(own.length, "model")}</dt>
          <dd>
            {own.slice(0, SHOWN).map(({ topic }) => (
              <a key={topic} className="mono" href={links.topic(topic)}>
                {topic}
              </a>
            ))}
            {own.length > SHOWN && <a href={PAGES.sync}>{own.length - SHOWN} more</a>}
            {own.length === 0 && <DocsLink page="DEFINING_MODELS.md">Define a model</DocsLink>}
          </dd>
        </div>
        <div>
          <dt>{plural(agents.length, "agent")}</dt>
          <dd>
            {agents.slice(0, SHOWN).map(({ name }) => (
              <a key={name} className="mono" href={links.agent(name)}>
                {name}
              </a>
            ))}
            {agents.length > SHOWN && <a href={PAGES.blackboard}>{agents.length - SHOWN} more</a>}
            {agents.length === 0 && <DocsLink page="AGENTS.md">Declare an agent</DocsLink>}
          </dd>
        </div>
        <div>
          <dt>Engine</dt>
          <dd>
            {hasEngine ? (
              <a href={PAGES.conversations}>answers in conversations</a>
            ) : (
              <DocsLink page="ENGINES.md">None yet: choose an engine</DocsLink>
            )}
          </dd>
        </div>
      </dl>
    </section>
  );
}
