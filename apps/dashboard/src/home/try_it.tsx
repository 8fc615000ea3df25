import { useKhala } from "@khala/client/react";
import { useMutation } from "@tanstack/react-query";
import { type FormEvent, Fragment, useId, useState } from "react";
import { useRecord } from "../conversations/use_record.ts";
import { links, setParams, useParam } from "../router.ts";
import { Button } from "../ui/controls/button.tsx";
import { Icon } from "../ui/controls/icons.tsx";
import { Failure } from "../ui/feedback/notices.tsx";
import { StateBadge } from "../ui/feedback/state_badge.tsx";
import { classNames } from "../ui/format/class_names.ts";
import type { DemoStep } from "./demo_steps.ts";
import { useDemoSteps } from "./use_demo_steps.ts";

const SUGGESTIONS = [
  "Write a note about otters",
  "Write a note about sourdough",
  "Write a note about the moon",
] as const;

/** Sends a message to the demo assistant, and shows its progress through the planes. */
export function TryIt() {
  const khala = useKhala();
  const [text, setText] = useState("");
  const [convId] = useParam("conv");
  const [runId] = useParam("run");
  const id = useId();
  const send = useMutation({
    mutationFn: async (message: string) => {
      const conv = `try-${crypto.randomUUID()}`;
      setText("");
      setParams({ conv, run: undefined }, { replace: true });
      const { run_id } = await khala.conversation(conv).send(message);
      setParams({ conv, run: run_id }, { replace: true });
    },
    onError: (_, message) => {
      setParams({ conv: undefined, run: undefined }, { replace: true });
      setText(message);
    },
  });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (!send.isPending) send.mutate(text.trim() || SUGGESTIONS[0]);
  };

  return (
    <section className="card try" aria-labelledby={`${id}-title`}>
      <div className="try-head">
        <h2 id={`${id}-title`}>Try it</h2>
        <p className="quiet">Send a message to the demo assistant and follow it through all three planes.</p>
      </div>
      <form className="try-form" onSubmit={submit}>
        <input
          className="field"
          type="text"
          aria-label="Message to the demo assistant"
          placeholder="Ask for a note…"
          autoComplete="off"
          value={text}
          onChange={(event) => setText(event.target.value)}
        />
        <Button kind="primary" type="submit" busy={send.isPending}>
          Send
        </Button>
      </form>
      {convId === undefined ? (
        <ul className="try-suggestions">
          {SUGGESTIONS.map((suggestion) => (
            <li key={suggestion}>
              <Button onClick={() => send.mutate(suggestion)} disabled={send.isPending}>
                {suggestion}
              </Button>
            </li>
          ))}
        </ul>
      ) : (
        <Progress key={convId} convId={convId} runId={runId} />
      )}
      {send.error && <Failure error={send.error} inline />}
    </section>
  );
}

interface ProgressProps {
  readonly convId: string;
  readonly runId: string | undefined;
}

/** What became of a message. A link to one that was deleted must not begin its conversation again. */
function Progress(props: ProgressProps) {
  const [isLink] = useState(props.runId !== undefined);
  return isLink ? <LinkedProgress {...props} /> : <Steps {...props} />;
}

function LinkedProgress(props: ProgressProps) {
  const { record, isAbsent } = useRecord(props.convId);
  if (isAbsent) return <p className="quiet">This conversation was deleted. Send another message.</p>;
  return record ? <Steps {...props} /> : null;
}

function Steps({ convId, runId }: ProgressProps) {
  const { steps, answer, traceId, letters, publishedNothing } = useDemoSteps(convId, runId);
  return (
    <div className="steps">
      <ol className="steps-list" aria-label="Progress of your message">
        {steps.map((step, index) => (
          <Fragment key={step.id}>
            {index > 0 && (
              <li
                className={classNames("steps-arrow", step.state !== "idle" && "steps-arrow-on")}
                aria-hidden="true"
              >
                <Icon name="arrow" />
              </li>
            )}
            <li>
              <StepView step={step} convId={convId} />
            </li>
          </Fragment>
        ))}
      </ol>
      {answer !== "" && (
        <figure className="steps-answer">
          <figcaption>Assistant</figcaption>
          <p>{answer}</p>
        </figure>
      )}
      {letters.map(({ id, agent, message }) => (
        <p key={id} className="steps-letter">
          <StateBadge state="waiting" word={`The task of ${agent} is a dead letter`} />
          <span className="quiet">{message}</span>
          <a href={links.deadLetter(agent, id)}>Review and replay</a>
        </p>
      ))}
      {publishedNothing && (
        <p className="quiet">This conversation published nothing. Only the assistant of the demo app does.</p>
      )}
      <p className="steps-links">
        <a href={links.conversation(convId)}>Open conversation</a>
        {runId !== undefined && <a href={links.correlation(runId)}>Timeline</a>}
        {traceId !== undefined && (
          <a href={links.trace(traceId)}>
            Trace <Icon name="out" size={12} />
          </a>
        )}
      </p>
    </div>
  );
}

function StepView({ step, convId }: { readonly step: DemoStep; readonly convId: string }) {
  const { id, label, note, state, artifactId, letter } = step;
  const href = letter
    ? links.deadLetter(letter.agent, letter.id)
    : id === "message" || id === "conversation"
      ? links.conversation(convId)
      : id === "reviewer"
        ? links.agent("reviewer")
        : artifactId && links.artifact(artifactId);
  const content = (
    <>
      {state === "idle" ? <span className="step-idle" /> : <Icon name={state} />}
      <span className="step-label">{label}</span>
      <span className="step-note">{note}</span>
    </>
  );
  const name = classNames("step", state);
  return href && state !== "idle" ? (
    <a className={name} href={href} data-step={id} data-state={state}>
      {content}
    </a>
  ) : (
    <span className={name} data-step={id} data-state={state}>
      {content}
    </span>
  );
}
