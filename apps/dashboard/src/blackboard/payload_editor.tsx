import { type FormEvent, useId, useState } from "react";
import { Button } from "../parts/button.tsx";
import { Section } from "../parts/detail_panel.tsx";
import { boardWords } from "../strings/blackboard.ts";
import { payloadText, readPayload } from "./payload_draft.ts";

const words = boardWords.letter;

export interface PayloadEditorProps {
  readonly payload: unknown;
  readonly busy: boolean;
  /** With the payload if it was changed, else with nothing. */
  readonly onReplay: (edit: { readonly payload: unknown } | undefined) => void;
  readonly onCancel: () => void;
}

/** The payload as JSON text, checked while one types: what is no JSON cannot be sent. */
export function PayloadEditor({ payload, busy, onReplay, onCancel }: PayloadEditorProps) {
  const [original] = useState(() => payloadText(payload));
  const [text, setText] = useState(original);
  const id = useId();
  const read = readPayload(text, original);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (read.ok) onReplay(read.changed ? { payload: read.value } : undefined);
  };
  return (
    <Section title={words.editLabel}>
      <form className="payload-editor" onSubmit={submit}>
        <textarea
          // biome-ignore lint/a11y/noAutofocus: the person has just asked to edit it
          autoFocus
          className="mono"
          spellCheck={false}
          value={text}
          rows={Math.min(24, Math.max(6, text.split("\n").length + 1))}
          aria-label={words.editLabel}
          aria-invalid={!read.ok}
          aria-describedby={id}
          onChange={(event) => setText(event.target.value)}
          onKeyDown={(event) => {
            if (event.key !== "Escape") return;
            // Else the panel would close with what was written.
            event.preventDefault();
            event.stopPropagation();
            onCancel();
          }}
        />
        <p id={id} className={read.ok ? "quiet" : "failed"} role="status">
          {read.ok
            ? read.changed
              ? words.editHint
              : words.unchanged
            : words.invalid(read.message, read.line)}
        </p>
        <div className="letter-actions">
          <Button kind="primary" icon="retry" type="submit" busy={busy} disabled={!read.ok}>
            {busy ? words.running : words.replayNow}
          </Button>
          <Button onClick={onCancel}>{words.cancel}</Button>
        </div>
      </form>
    </Section>
  );
}
