import { useKhala } from "@khala/client/react";
import { useMutation } from "@tanstack/react-query";
import { useState } from "react";
import { useFetch } from "../../data/fetch.ts";
import { links, setParams } from "../../router.ts";
import { Button } from "../../ui/controls/button.tsx";
import { Fetched } from "../../ui/feedback/fetched.tsx";
import { Failure } from "../../ui/feedback/notices.tsx";
import { StateBadge } from "../../ui/feedback/state_badge.tsx";
import { Ago } from "../../ui/format/ago.tsx";
import { Id } from "../../ui/format/id.tsx";
import { DetailPanel, Facts, Section, TextLink } from "../../ui/panel/detail_panel.tsx";
import { Payload } from "../artifact_panel.tsx";
import { type DeadLetter, readDeadLetter } from "../board_types.ts";
import { PayloadEditor } from "./payload_editor.tsx";

const EVERY_MS = 3_000;
const KINDS: Readonly<Record<string, string>> = {
  fatal: "fatal: not retried",
  retryable: "retryable: all attempts failed",
  rate_limited: "rate limited: all attempts used",
};

export interface LetterPanelProps {
  readonly agent: string;
  readonly id: string;
  readonly onClose: () => void;
}

/** One dead letter: the failure, the task, and the buttons to replay it. */
export function LetterPanel({ agent, id, onClose }: LetterPanelProps) {
  const { board } = useKhala();
  const state = useFetch(
    ["dead-letter", agent, id],
    async () => readDeadLetter(await board.deadLetter(agent, id)),
    EVERY_MS,
  );
  return (
    <DetailPanel label="Dead letter" title="Dead letter" onClose={onClose}>
      <Fetched state={state}>{(letter) => <Letter letter={letter} onReplayed={state.refetch} />}</Fetched>
    </DetailPanel>
  );
}

function Letter({ letter, onReplayed }: { readonly letter: DeadLetter; readonly onReplayed: () => void }) {
  const { board } = useKhala();
  const [isEditing, setEditing] = useState(false);
  const { task, failure, agent, id } = letter;
  const [first] = task?.artifacts.length === 1 ? task.artifacts : [];
  const editable = first?.payload === undefined ? undefined : first;
  const replay = useMutation({
    mutationFn: (edit: { readonly payload: unknown } | undefined) =>
      board.replay(agent, id, edit as Parameters<typeof board.replay>[2]),
    onSuccess: () => {
      setEditing(false);
      onReplayed();
    },
  });
  const busy = replay.isPending;

  return (
    <div className="letter">
      <p className="letter-message">
        <StateBadge state="failed" word={failure.class} />
        <span>{failure.message}</span>
      </p>
      {task && !isEditing && (
        <div className="letter-actions">
          <Button kind="primary" icon="retry" busy={busy} onClick={() => replay.mutate(undefined)}>
            Replay
          </Button>
          {editable && (
            <Button icon="edit" onClick={() => setEditing(true)}>
              Edit and replay
            </Button>
          )}
        </div>
      )}
      <div role="status">
        {replay.data &&
          (replay.data.status === "already_replayed" ? (
            <StateBadge state="waiting" word="Already replayed. It does not run again." />
          ) : (
            <StateBadge state="ok" word="Replayed. The task runs once more, with its own idempotency key." />
          ))}
      </div>
      {replay.error && <Failure error={replay.error} inline />}
      <LetterFacts letter={letter} />
      {editable && isEditing ? (
        <PayloadEditor
          payload={editable.payload}
          busy={busy}
          onReplay={replay.mutate}
          onCancel={() => setEditing(false)}
        />
      ) : (
        task?.artifacts.map((artifact) => (
          <Section key={artifact.id} title={`Payload: ${artifact.type}`}>
            <Payload artifact={artifact} />
            <Button kind="bare" icon="arrow" onClick={() => setParams({ artifact: artifact.id, letter: "" })}>
              Open artifact
            </Button>
          </Section>
        ))
      )}
      {letter.raw !== "" && (
        <Section title="Payload">
          <p className="quiet">The raw record in base64. It cannot be replayed: fix the producer.</p>
          <pre className="letter-stack mono">{letter.raw}</pre>
        </Section>
      )}
      <Section title="Stack trace">
        {failure.stack === "" ? (
          <p className="quiet">No stack trace</p>
        ) : (
          // biome-ignore lint/a11y/noNoninteractiveTabindex: a scrolling area must be reachable by keyboard
          <pre className="letter-stack mono" tabIndex={0}>
            {failure.stack}
          </pre>
        )}
      </Section>
    </div>
  );
}

function LetterFacts({ letter }: { readonly letter: DeadLetter }) {
  const { agent, id, task, failure, replay_id } = letter;
  const correlation = task?.artifacts[0]?.correlation_id ?? "";
  return (
    <Facts
      facts={[
        [
          "Agent",
          <TextLink key="agent" href={links.agent(agent)}>
            {agent}
          </TextLink>,
        ],
        ["Kind", KINDS[failure.kind] ?? failure.kind],
        ["Attempts", letter.attempts],
        ["Failed", <Ago key="at" at={letter.failed_at} />],
        ["Source", <code key="source">{letter.origin}</code>],
        task !== undefined && ["Key", <Id key="key" value={task.key} length={28} />],
        correlation !== "" && [
          "Correlation",
          <TextLink key="correlation" mono href={links.correlation(correlation)}>
            {correlation}
          </TextLink>,
        ],
        ["Id", <Id key="id" value={id} length={28} />],
        replay_id !== "" && ["Last replay", <Id key="replay" value={replay_id} length={28} />],
      ]}
    />
  );
}
