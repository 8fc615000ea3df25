import { type FormEvent, useId, useState } from "react";
import { Button } from "../../ui/controls/button.tsx";
import { Section } from "../../ui/panel/detail_panel.tsx";
import { parsePayload, payloadText } from "./payload_draft.ts";

export interface PayloadEditorProps {
  readonly payload: unknown;
  readonly busy: boolean;
  /** Called with the payload if it was changed, else with nothing. */
  readonly onReplay: (edit: { readonly payload: unknown } | undefined) => void;
  readonly onCancel: () => void;
}

/** A JSON editor that validates while one types. */
export function PayloadEditor({ payload, busy, onReplay, onCancel }: PayloadEditorProps) {
  const [original] = useState(() => payloadText(payload));
  const [text, setText] = useState(original);
  const id = useId();
  const draft = parsePayload(text, original);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (draft.ok) onReplay(draft.changed ? { payload: draft.value } : undefined);
  };
  return (
    <Section title="Payload as JSON">
      <form className="payload-editor" onSubmit={submit}>
        <textarea
          // biome-ignore lint/a11y/noAutofocus: the user has just opened the editor
          autoFocus
          className="mono"
          spellCheck={false}
          value={text}
          rows={Math.min(24, Math.max(6, text.split("\n").length + 1))}
          aria-label="Payload as JSON"
          aria-invalid={!draft.ok}
          aria-describedby={id}
          onChange={(event) => setText(event.target.value)}
          onKeyDown={(event) => {
            if (event.key !== "Escape") return;
            // Otherwise the panel would close and lose the edit.
            event.preventDefault();
            event.stopPropagation();
            onCancel();
          }}
        />
        <p id={id} className={draft.ok ? "quiet" : "failed"} role="status">
          {!draft.ok
            ? `Invalid JSON, line ${draft.line}: ${draft.message}.`
            : draft.changed
              ? "The edited payload replaces the original for this replay."
              : "Unchanged: the original payload is replayed."}
        </p>
        <div className="letter-actions">
          <Button kind="primary" icon="retry" type="submit" busy={busy} disabled={!draft.ok}>
            {busy ? "Replaying…" : "Replay"}
          </Button>
          <Button onClick={onCancel}>Cancel</Button>
        </div>
      </form>
    </Section>
  );
}
