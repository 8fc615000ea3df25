import { useState } from "react";
import type { App, Example } from "../data/app.ts";
import { toErrorInfo } from "../data/fetch.ts";
import { useSession } from "../session.tsx";
import { Button } from "../ui/controls/button.tsx";
import { useToast } from "../ui/feedback/toast.tsx";
import "./app_summary.css";

const ACTION: Readonly<Record<string, (name: string) => string>> = {
  sync: (name) => `Append ${name}`,
  conversations: () => "Send a message",
  blackboard: (name) => `Publish ${article(name)} ${name}`,
};

const article = (name: string) => (/^[aeiou]/i.test(name) ? "an" : "a");

interface FirstRequestProps {
  readonly app: App;
  readonly plane: string;
}

/** A command for the app's own types, to be copied into a terminal. It works as it is. */
export function FirstRequest({ app, plane }: FirstRequestProps) {
  const example = app.examples.find((one) => one.plane === plane);
  const { newToken } = useSession();
  const toast = useToast();
  const [isBusy, setBusy] = useState(false);
  if (!example || app.isDemo) return null;
  const copy = async () => {
    setBusy(true);
    try {
      await navigator.clipboard.writeText(commandOf(example, await newToken()));
      toast("Copied. Paste it into a terminal; the token in it is good for a few minutes.");
    } catch (error) {
      toast(toErrorInfo(error).message, "failed");
    } finally {
      setBusy(false);
    }
  };
  return (
    <div className="first-request">
      <p>
        <span>{ACTION[plane]?.(example.name)}</span>
        <Button
          kind="bare"
          icon="copy"
          busy={isBusy}
          onClick={copy}
          aria-label={`Copy: ${ACTION[plane]?.(example.name)}`}
        >
          Copy
        </Button>
      </p>
      <code>{commandOf(example, "$TOKEN").replaceAll(/\s*\\\n\s*/g, " ")}</code>
    </div>
  );
}

/** One line for any POSIX shell. */
function commandOf({ path, body }: Example, token: string): string {
  const json = JSON.stringify(body).replaceAll("'", "'\\''");
  return `curl -sS '${window.location.origin}${path}' -H "Authorization: Bearer ${token}" -H 'Content-Type: application/json' -d '${json}'`;
}
