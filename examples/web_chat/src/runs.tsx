import { useList } from "./khala.ts";

/** Every answer is a run, and every run a document: a list that is live, and there at once after a reload. */
export function Runs() {
  const { items, phase } = useList("runtime.run_summaries", {
    select: ({ key, data }) => ({ key, title: data.title ?? "", status: data.status ?? "" }),
  });
  return (
    <aside>
      <h2>Runs</h2>
      {phase === "loading" && <p>Loading…</p>}
      <ul>
        {items.map(({ key, title, status }) => (
          <li key={key}>
            {title || key} <em>{status}</em>
          </li>
        ))}
      </ul>
    </aside>
  );
}
