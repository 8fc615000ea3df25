import { Answered } from "../parts/answered.tsx";
import { Empty } from "../parts/states.tsx";
import { setParams, useParam } from "../router.ts";
import { boardWords } from "../strings/blackboard.ts";
import { DeadLettersView } from "./dead_letters_view.tsx";
import type { FlowAgent } from "./flow_graph.ts";
import type { BoardNow } from "./use_board.ts";

/** The dead letters of one agent: the one that the address names, or the one with the most. */
export function DeadLetters({ board: { agents } }: { readonly board: BoardNow }) {
  return (
    <Answered asked={agents}>
      {(data) =>
        data.length === 0 ? (
          <Empty title={boardWords.letters.nobodyTitle} icon="ok">
            {boardWords.letters.nobodyText}
          </Empty>
        ) : (
          <OfAgent agents={data} />
        )
      }
    </Answered>
  );
}

/** What the router itself could not decode is under this name. */
const ROUTER = "router";

function OfAgent({ agents }: { readonly agents: readonly FlowAgent[] }) {
  const [named] = useParam("agent");
  const [filter = "", setFilter] = useParam("q");
  const [letter] = useParam("letter");
  const worst = agents.reduce((most, agent) => (agent.dead > most.dead ? agent : most));
  const agent = named ?? worst.name;
  const names = [...agents.map(({ name, dead }) => ({ name, dead }))];
  if (agent === ROUTER || names.every(({ name }) => name !== agent)) names.push({ name: agent, dead: 0 });
  return (
    <DeadLettersView
      key={agent}
      agent={agent}
      agents={names}
      onAgent={(name) => setParams({ agent: name, letter: "" })}
      filter={filter}
      onFilter={(text) => setFilter(text, { replace: true })}
      selected={letter}
      // The agent is named from here on: what is chosen must not change when another one gets more letters.
      onSelect={(id) =>
        setParams({ letter: id, agent, tab: "dead", artifact: "" }, { replace: letter !== undefined })
      }
    />
  );
}
