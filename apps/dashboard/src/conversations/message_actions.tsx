import { branchesOf } from "@khala/client";
import { type FormEvent, type KeyboardEvent, useState } from "react";
import { Button } from "../ui/controls/button.tsx";
import type { Message } from "./types.ts";

/** What a reader may do with a message. Each fails visibly by itself. */
export interface MessageActions {
  readonly regenerate: (messageId: string) => void;
  readonly edit: (messageId: string, text: string) => void;
  readonly choose: (messageId: string) => void;
  /** Approves or rejects a tool call that waits for a person. */
  readonly decide: (toolCallId: string, approved: boolean) => void;
}

interface BarProps {
  readonly message: Message;
  readonly actions: MessageActions;
  readonly onEdit: () => void;
}

/** Below a message: its branches, as "2 / 3", and another answer or another version. */
export function MessageBar({ message, actions, onEdit }: BarProps) {
  const { message_id: id = "", role, parts = [] } = message;
  const branches = branchesOf(message);
  const { previous, next } = branches ?? {};
  const isText = parts.length === 1 && parts[0]!.text !== undefined;
  return (
    <div className="message-bar">
      {branches && (
        <>
          <Button
            kind="bare"
            icon="chevron"
            className="message-previous"
            aria-label="Previous version"
            disabled={previous === undefined}
            onClick={() => previous && actions.choose(previous)}
          />
          <span>
            {branches.position} / {branches.count}
          </span>
          <Button
            kind="bare"
            icon="chevron"
            aria-label="Next version"
            disabled={next === undefined}
            onClick={() => next && actions.choose(next)}
          />
        </>
      )}
      {role === "assistant" && (
        <Button
          kind="bare"
          icon="retry"
          aria-label="Regenerate"
          title="Regenerate"
          onClick={() => actions.regenerate(id)}
        />
      )}
      {role === "user" && isText && (
        <Button kind="bare" icon="edit" aria-label="Edit" title="Edit" onClick={onEdit} />
      )}
    </div>
  );
}

interface EditorProps {
  readonly text: string;
  readonly onSave: (text: string) => void;
  readonly onCancel: () => void;
}

/** In the place of a question: another version of it. */
export function MessageEditor({ text: before, onSave, onCancel }: EditorProps) {
  const [text, setText] = useState(before);
  const save = () => {
    if (text.trim() !== "") onSave(text.trim());
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === "Escape") return onCancel();
    if (event.key !== "Enter" || event.shiftKey || event.nativeEvent.isComposing) return;
    event.preventDefault();
    save();
  };
  return (
    <form
      className="message-editor"
      onSubmit={(event: FormEvent) => {
        event.preventDefault();
        save();
      }}
    >
      <textarea
        // biome-ignore lint/a11y/noAutofocus: who chose to edit writes next
        autoFocus
        rows={3}
        value={text}
        aria-label="New version"
        onChange={(event) => setText(event.target.value)}
        onKeyDown={onKeyDown}
      />
      <div className="message-bar">
        <Button onClick={onCancel}>Cancel</Button>
        <Button kind="primary" type="submit" disabled={text.trim() === ""}>
          Save
        </Button>
      </div>
    </form>
  );
}
