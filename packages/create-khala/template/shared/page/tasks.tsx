import { useAppend, useList } from "./client.ts";
import { Entry } from "./entry.tsx";

/** A live list: open this page twice, and change something in one of them. */
export function Tasks() {
  const { items, phase } = useList("app.tasks");
  const { append } = useAppend("/app/v1/tasks");
  return (
    <section aria-labelledby="tasks">
      <h2 id="tasks">Tasks</h2>
      <ul>
        {items.map(({ key, data: { title, done } }) => {
          const id = key.replace("task:", "");
          return (
            <li key={key}>
              <label>
                <input
                  type="checkbox"
                  checked={done}
                  onChange={() => append(id, { type: "task.done", data: { done: !done } })}
                />
                {title}
              </label>
              <button
                type="button"
                aria-label={`Delete ${title}`}
                onClick={() => append(id, { type: "task.deleted", data: {} })}
              >
                ×
              </button>
            </li>
          );
        })}
      </ul>
      {items.length === 0 && <p>{phase === "loading" ? "Loading…" : "Nothing to do."}</p>}
      <Entry
        label="New task"
        send={(title) => append(crypto.randomUUID(), { type: "task.added", data: { title } })}
      />
    </section>
  );
}
