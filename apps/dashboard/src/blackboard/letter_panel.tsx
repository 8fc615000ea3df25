import { useKhala } from "@khala/client/react";
import { useState } from "react";
import { Ago } from "../parts/ago.tsx";
import { Answered } from "../parts/answered.tsx";
import { asFailure, useAsk } from "../parts/asking.ts";
import { Button } from "../parts/button.tsx";
import { DetailPanel, Facts, Section } from "../parts/detail_panel.tsx";
import { Id } from "../parts/id.tsx";
import { StateBadge } from "../parts/state_badge.tsx";
import { Failure, type FailureLike } from "../parts/states.tsx";
import { links, setParams } from "../router.ts";
import { boardWords } from "../strings/blackboard.ts";
import { type DeadLetter, readDeadLetter } from "./board_types.ts";
import { Payload } from "./payload.tsx";
import { PayloadEditor } from "./payload_editor.tsx";

const words = boardWords.letter;

export interface LetterPanelProps {
  readonly agent: string;
  readonly id: string;
  readonly onClose: () => void;
}

/** One dead letter: what happened, where, with what; and the ways to run it again. */
export function LetterPanel({ agent, id, onClose }: LetterPanelProps) {
  const { board } = useKhala();
  const asked = useAsk(
    `letter ${agent} ${id}`,
    async () => readDeadLetter(await board.deadLetter(agent, id)),
    {
      everyMs: 3_000,
    },
  );
  return (
    <DetailPanel label={words.title} title={words.title} onClose={onClose}>
      <Answered asked={asked}>{(letter) => <Letter letter={letter} onReplayed={asked.again} />}</Answered>
    </DetailPanel>
  );
}

type Replayed = "replayed" | "already_replayed";

function Letter({ letter, onReplayed }: { readonly letter: DeadLetter; readonly onReplayed: () => void }) {
  const { board } = useKhala();
  const [isEditing, setEditing] = useState(false);
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<FailureLike>();
  const [result, setResult] = useState<Replayed>();
  const { task, failure, agent, id } = letter;
  const [first] = task?.artifacts.length === 1 ? task.artifacts : [];
  const only = first?.payload === undefined ? undefined : first;

  const replay = async (edit?: { readonly payload: unknown }) => {
    setBusy(true);
    setError(undefined);
    try {
      const answer = await board.replay(agent, id, edit as Parameters<typeof board.replay>[2]);
      setResult(answer.status === "already_replayed" ? "already_replayed" : "replayed");
      setEditing(false);
      onReplayed();
    } catch (reason) {
      setError(asFailure(reason));
    } finally {
      setBusy(false);
    }
  };

  return (
    <div className="letter">
      <p className="letter-message">
        <StateBadge state="failed" word={failure.class} />
        <span>{failure.message}</span>
      </p>
      {task && !isEditing && (
        <div className="letter-actions">
          <Button kind="primary" icon="retry" busy={busy} onClick={() => replay()}>
            {words.replayNow}
          </Button>
          {only && (
            <Button icon="edit" onClick={() => setEditing(true)}>
              {words.edit}
            </Button>
          )}
        </div>
      )}
      <div role="status">
        {result && (
          <StateBadge
            state={result === "replayed" ? "ok" : "waiting"}
            word={result === "replayed" ? words.done : words.already}
          />
        )}
      </div>
      {error && <Failure error={error} inline />}
      <LetterFacts letter={letter} />
      {only && isEditing ? (
        <PayloadEditor
          payload={only.payload}
          busy={busy}
          onReplay={replay}
          onCancel={() => setEditing(false)}
        />
      ) : (
        task && <Payloads letter={letter} />
      )}
      {letter.raw !== "" && (
        <Section title={words.payload}>
          <p className="quiet">{words.raw}</p>
          <pre className="letter-stack mono">{letter.raw}</pre>
        </Section>
      )}
      <Section title={words.stack}>
        {failure.stack === "" ? (
          <p className="quiet">{words.noStack}</p>
        ) : (
          // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by keyboard
          <pre className="letter-stack mono" tabIndex={0}>
            {failure.stack}
          </pre>
        )}
      </Section>
    </div>
  );
}

function LetterFacts({ letter }: { readonly letter: DeadLetter }) {
  const { task, failure, attempts, failed_at, origin, replay_id } = letter;
  const correlation = task?.artifacts[0]?.correlation_id ?? "";
  return (
    <Facts
      facts={[
        {
          name: words.agent,
          value: (
            <a className="text-link" href={links.agent(letter.agent)}>
              {letter.agent}
            </a>
          ),
        },
        { name: words.kind, value: words.kinds[failure.kind] ?? failure.kind },
        { name: words.attempts, value: attempts },
        { name: words.failedAt, value: <Ago at={failed_at} /> },
        { name: words.origin, value: <code>{origin}</code> },
        task !== undefined && { name: words.key, value: <Id value={task.key} length={28} /> },
        correlation !== "" && {
          name: words.correlation,
          value: (
            <a className="text-link mono" href={links.correlation(correlation)}>
              {correlation}
            </a>
          ),
        },
        { name: words.id, value: <Id value={letter.id} length={28} /> },
        replay_id !== "" && { name: words.replay, value: <Id value={replay_id} length={28} /> },
      ]}
    />
  );
}

function Payloads({ letter: { task } }: { readonly letter: DeadLetter }) {
  const artifacts = task?.artifacts ?? [];
  return artifacts.map((artifact) => (
    <Section key={artifact.id} title={`${words.payload}: ${artifact.type}`}>
      <Payload artifact={artifact} />
      <Button kind="bare" icon="arrow" onClick={() => setParams({ artifact: artifact.id, letter: "" })}>
        {words.openArtifact}
      </Button>
    </Section>
  ));
}
