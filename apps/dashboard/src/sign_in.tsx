import { type FormEvent, useId, useState } from "react";
import { Button } from "./parts/button.tsx";
import { Dialog } from "./parts/dialog.tsx";
import { Icon } from "./parts/icons.tsx";
import { sessionWords as words } from "./strings/app.ts";

interface SignProps {
  readonly onSign: (token: string) => void;
}

/** In place of the rooms, where a token is needed and none is there. */
export function TokenPage({ onSign }: SignProps) {
  return (
    <main className="sign-in">
      <div className="card sign-in-card">
        <Icon name="key" size={22} />
        <h1>{words.title}</h1>
        <p className="quiet">{words.about}</p>
        <TokenForm onSign={onSign} />
      </div>
    </main>
  );
}

interface TokenDialogProps extends SignProps {
  readonly open: boolean;
  readonly onClose: () => void;
  /** Undefined when no token was pasted. */
  readonly onForget: (() => void) | undefined;
  readonly mints: boolean;
}

/** Over the rooms, to go on with another token. */
export function TokenDialog({ open, onClose, onSign, onForget, mints }: TokenDialogProps) {
  return (
    <Dialog open={open} onClose={onClose} title={words.changeTitle} about={words.changeAbout}>
      <TokenForm onSign={onSign} />
      {onForget && (
        <p className="sign-in-forget">
          <Button kind="bare" onClick={onForget}>
            {mints ? words.useDevToken : words.signOut}
          </Button>
        </p>
      )}
    </Dialog>
  );
}

function TokenForm({ onSign }: SignProps) {
  const [token, setToken] = useState("");
  const [isWrong, setWrong] = useState(false);
  const id = useId();
  const submit = (event: FormEvent) => {
    event.preventDefault();
    const text = token.trim();
    const looksRight = /^[\w-]+\.[\w-]+\.[\w-]+$/.test(text);
    setWrong(!looksRight);
    if (looksRight) onSign(text);
  };
  return (
    <form className="sign-in-form" onSubmit={submit}>
      <p className="quiet">{words.make}</p>
      <code className="notice-code">{words.command}</code>
      <label htmlFor={id}>{words.field}</label>
      <textarea
        id={id}
        className="field mono"
        rows={4}
        spellCheck={false}
        autoComplete="off"
        placeholder={words.placeholder}
        value={token}
        aria-invalid={isWrong || undefined}
        aria-describedby={`${id}-note`}
        onChange={(event) => setToken(event.target.value)}
      />
      <p id={`${id}-note`} className={isWrong ? "failed" : "quiet"} role={isWrong ? "alert" : undefined}>
        {isWrong ? words.notAToken : words.kept}
      </p>
      <Button kind="primary" type="submit" disabled={token.trim() === ""}>
        {words.signIn}
      </Button>
    </form>
  );
}
