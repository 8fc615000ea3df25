import { useEffect, useState } from "react";
import { artifacts } from "../khala/schemas.ts";
import { khala } from "./client.ts";
import { Entry } from "./entry.tsx";

/** Publishes goals, and shows the plans that the agent makes of them. */
export function Board() {
  const [plans, setPlans] = useState<readonly Plan[]>([]);
  const [problem, setProblem] = useState<Error>();
  useEffect(() => {
    const read = () => readPlans().then(setPlans, setProblem);
    read();
    // Changes when somebody has published something.
    return khala.sync.subscribe("blackboard.correlations", read);
  }, []);
  return (
    <section aria-labelledby="board">
      <h2 id="board">Board</h2>
      {plans.map(({ id, goal, steps }) => (
        <article key={id}>
          <h3>{goal}</h3>
          <ol>
            {steps.map((step) => (
              <li key={step}>{step}</li>
            ))}
          </ol>
        </article>
      ))}
      {plans.length === 0 && <p>Publish a goal, and an agent plans it.</p>}
      {problem && <p role="alert">{problem.message}</p>}
      <Entry label="Goal" send={(text) => khala.board.publish({ type: "Goal", payload: { text } })} />
    </section>
  );
}

type Plan = Awaited<ReturnType<typeof readPlans>>[number];

async function readPlans() {
  const found = await khala.board.artifacts({ type: "Plan", limit: 5 });
  return (found.artifacts ?? []).map(({ id, payload }) => ({ id, ...artifacts.Plan.parse(payload) }));
}
