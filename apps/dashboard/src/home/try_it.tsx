import { useKhala } from "@khala/client/react";
import { type FormEvent, Fragment, useId, useState } from "react";
import { asFailure } from "../parts/asking.ts";
import { Button } from "../parts/button.tsx";
import { classNames } from "../parts/class_names.ts";
import { Icon } from "../parts/icons.tsx";
import { StateBadge } from "../parts/state_badge.tsx";
import { Failure, type FailureLike } from "../parts/states.tsx";
import { links, setParams, useParam } from "../router.ts";
import { homeWords as words } from "../strings/home.ts";
import type { Step } from "./journey.ts";
import { useJourney } from "./use_journey.ts";

/** Sends a message to the demo assistant, and shows it going through the planes. */
export function TryIt() {
  const khala = useKhala();
  const [text, setText] = useState("");
  const [isSending, setSending] = useState(false);
  const [error, setError] = useState<FailureLike>();
  const [convId] = useParam("conv");
  const [runId] = useParam("run");
  const id = useId();

  const send = async (message: string) => {
    const conv = `try-${crypto.randomUUID()}`;
    setError(undefined);
    setSending(true);
    setText("");
    setParams({ conv, run: undefined }, { replace: true });
    try {
      const { run_id } = await khala.conversation(conv).send(message);
      setParams({ conv, run: run_id }, { replace: true });
    } catch (failure) {
      setParams({ conv: undefined, run: undefined }, { replace: true });
      setText(message);
      setError(asFailure(failure));
    } finally {
      setSending(false);
    }
  };
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (!isSending) void send(text.trim() || words.trySuggestions[0]);
  };

  return (
    <section className="card try" aria-labelledby={`${id}-title`}>
      <div className="try-head">
        <h2 id={`${id}-title`}>{words.tryTitle}</h2>
        <p className="quiet">{words.tryAbout}</p>
      </div>
      <form className="try-form" onSubmit={submit}>
        <input
          className="field"
          type="text"
          aria-label={words.tryLabel}
          placeholder={words.tryPlaceholder}
          autoComplete="off"
          value={text}
          onChange={(event) => setText(event.target.value)}
        />
        <Button kind="primary" type="submit" busy={isSending}>
          {words.send}
        </Button>
      </form>
      {convId === undefined ? (
        <ul className="try-suggestions">
          {words.trySuggestions.map((suggestion) => (
            <li key={suggestion}>
              <Button onClick={() => void send(suggestion)} disabled={isSending}>
                {suggestion}
              </Button>
            </li>
          ))}
        </ul>
      ) : (
        <Way key={convId} convId={convId} runId={runId} />
      )}
      {error && <Failure error={error} inline />}
    </section>
  );
}

function Way({ convId, runId }: { readonly convId: string; readonly runId: string | undefined }) {
  const { steps, answer, traceId, letters, isSilent } = useJourney(convId, runId);
  return (
    <div className="way">
      <ol className="way-steps" aria-label={words.journeyLabel}>
        {steps.map((step, index) => (
          <Fragment key={step.id}>
            {index > 0 && (
              <li
                className={classNames("way-arrow", step.state !== "idle" && "way-arrow-on")}
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
        <figure className="way-answer">
          <figcaption>{words.assistantSays}</figcaption>
          <p>{answer}</p>
        </figure>
      )}
      {letters.map(({ id, agent, message }) => (
        <p key={id} className="way-letter">
          <StateBadge state="waiting" word={words.gaveUp(agent)} />
          <span className="quiet">{message}</span>
          <a href={links.deadLetter(agent, id)}>{words.replay}</a>
        </p>
      ))}
      {isSilent && <p className="quiet">{words.noBoard}</p>}
      <p className="way-links">
        <a href={links.conversation(convId)}>{words.openConversation}</a>
        {runId !== undefined && <a href={links.correlation(runId)}>{words.correlation}</a>}
        {traceId !== undefined && (
          <a href={links.trace(traceId)}>
            {words.trace} <Icon name="out" size={12} />
          </a>
        )}
      </p>
    </div>
  );
}

function StepView({ step, convId }: { readonly step: Step; readonly convId: string }) {
  const { id, label, note, state, artifactId, letter } = step;
  const href = letter
    ? links.deadLetter(letter.agent, letter.id)
    : id === "message" || id === "conversation"
      ? links.conversation(convId)
      : id === "reviewer"
        ? links.agent("reviewer")
        : artifactId && links.artifact(artifactId);
  const inside = (
    <>
      {state === "idle" ? <span className="way-idle" /> : <Icon name={state} />}
      <span className="way-label">{label}</span>
      <span className="way-note">{note}</span>
    </>
  );
  const name = classNames("way-step", state);
  return href && state !== "idle" ? (
    <a className={name} href={href} data-step={id} data-state={state}>
      {inside}
    </a>
  ) : (
    <span className={name} data-step={id} data-state={state}>
      {inside}
    </span>
  );
}
