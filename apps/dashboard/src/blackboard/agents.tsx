import { useKhala } from "@khala/client/react";
import { useCallback, useState } from "react";
import { Answered } from "../parts/answered.tsx";
import { asFailure } from "../parts/asking.ts";
import { Failure, type FailureLike } from "../parts/states.tsx";
import { useParam } from "../router.ts";
import { boardWords } from "../strings/blackboard.ts";
import { AgentsView } from "./agents_view.tsx";
import { CancelDialog } from "./cancel_dialog.tsx";
import type { BoardNow } from "./use_board.ts";

const words = boardWords.agents;

/** The agents, and what comes of pausing, resuming or cancelling one. */
export function Agents({ board: { agents } }: { readonly board: BoardNow }) {
  const { board } = useKhala();
  const [selected, select] = useParam("agent");
  const [changing, setChanging] = useState<string>();
  const [error, setError] = useState<FailureLike>();
  const [said, setSaid] = useState<string>();
  const [cancelling, setCancelling] = useState<string>();
  const { again } = agents;

  const change = useCallback(
    async (name: string, act: (name: string) => Promise<void>, done: string) => {
      setChanging(name);
      setError(undefined);
      try {
        await act(name);
        setSaid(done);
        again();
      } catch (failure) {
        setError(asFailure(failure));
      } finally {
        setChanging(undefined);
      }
    },
    [again],
  );
  const pause = useCallback((name: string) => change(name, board.pause, words.paused(name)), [change, board]);
  const resume = useCallback(
    (name: string) => change(name, board.resume, words.resumed(name)),
    [change, board],
  );
  const cancel = (name: string) => {
    setCancelling(undefined);
    return change(name, board.cancelAgent, words.cancelled(name));
  };

  return (
    <Answered asked={agents}>
      {(data) => (
        <>
          {error && <Failure error={error} inline />}
          <p role="status" className={said === undefined ? "visually-hidden" : "room-note"}>
            {said}
          </p>
          <AgentsView
            agents={data}
            selected={selected}
            onSelect={select}
            changing={changing}
            onPause={pause}
            onResume={resume}
            onCancel={setCancelling}
          />
          {data
            .filter(({ name }) => name === cancelling)
            .map((agent) => (
              <CancelDialog
                key={agent.name}
                agent={agent}
                onClose={() => setCancelling(undefined)}
                onConfirm={() => cancel(agent.name)}
              />
            ))}
        </>
      )}
    </Answered>
  );
}
