import { type FormEvent, useState } from "react";

interface EntryProps {
  readonly label: string;
  readonly send: (text: string) => Promise<unknown>;
}

/** A field that sends what is typed, and says so when that fails. */
export function Entry({ label, send }: EntryProps) {
  const [text, setText] = useState("");
  const [problem, setProblem] = useState<Error>();
  function submit(event: FormEvent) {
    event.preventDefault();
    setText("");
    setProblem(undefined);
    send(text).catch(setProblem);
  }
  return (
    <form onSubmit={submit}>
      {problem && <p role="alert">{problem.message}</p>}
      <input
        aria-label={label}
        placeholder={label}
        value={text}
        onChange={(event) => setText(event.target.value)}
      />
      <button type="submit" disabled={text.trim() === ""}>
        Send
      </button>
    </form>
  );
}
