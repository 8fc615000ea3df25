import { type ReactNode, useState } from "react";
import { partWords } from "../strings/parts.ts";
import { Button } from "./button.tsx";
import { useCopy } from "./copying.ts";
import { Icon } from "./icons.tsx";
import "./json.css";

const AT_ONCE = 100;
const LONG_TEXT = 600;

export interface JsonProps {
  readonly value: unknown;
  /** How many levels are open at first. */
  readonly open?: number;
  /** What it is, for screen readers. */
  readonly label?: string;
}

/** A JSON value that can be opened, closed and copied. */
export function Json({ value, open = 2, label = "JSON" }: JsonProps) {
  const [copied, copy] = useCopy();
  return (
    <div className="json mono" role="group" aria-label={label}>
      <div className="json-copy">
        <Button
          kind="bare"
          icon={copied ? "check" : "copy"}
          aria-label={copied ? partWords.copied : partWords.copy}
          onClick={() => copy(JSON.stringify(value, null, 2) ?? "")}
        />
      </div>
      <Node value={value} open={open} />
    </div>
  );
}

interface NodeProps {
  readonly name?: string;
  readonly value: unknown;
  readonly open: number;
}

function Node({ name, value, open }: NodeProps) {
  if (typeof value === "object" && value !== null)
    return <Branch name={name ?? ""} value={value} open={open} />;
  return (
    <div className="json-line">
      <Name name={name} />
      <Leaf value={value} />
    </div>
  );
}

function Name({ name }: { readonly name: string | undefined }) {
  if (name === undefined || name === "") return null;
  return <span className="json-name">{name}: </span>;
}

function Branch({
  name,
  value,
  open,
}: {
  readonly name: string;
  readonly value: object;
  readonly open: number;
}) {
  const [isOpen, setOpen] = useState(open > 0);
  const [shown, setShown] = useState(AT_ONCE);
  const isList = Array.isArray(value);
  const entries = Object.entries(value);
  const size = isList ? partWords.items(entries.length) : partWords.fields(entries.length);
  if (entries.length === 0)
    return (
      <div className="json-line">
        <Name name={name} />
        {isList ? "[]" : "{}"}
      </div>
    );
  return (
    <div className="json-branch">
      <button type="button" className="json-toggle" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
        <Icon name="chevron" size={12} />
        <Name name={name} />
        <span className="json-size">
          {isList ? "[" : "{"} {size} {isList ? "]" : "}"}
        </span>
      </button>
      {isOpen && (
        <div className="json-inside">
          {entries.slice(0, shown).map(([key, inner]) => (
            <Node key={key} name={key} value={inner} open={open - 1} />
          ))}
          {entries.length > shown && (
            <button type="button" className="json-more" onClick={() => setShown(shown + 10 * AT_ONCE)}>
              {partWords.more(entries.length - shown)}
            </button>
          )}
        </div>
      )}
    </div>
  );
}

function Leaf({ value }: { readonly value: unknown }): ReactNode {
  const [isWhole, setWhole] = useState(false);
  if (typeof value !== "string") return <span className={`json-${typeof value}`}>{String(value)}</span>;
  const isCut = value.length > LONG_TEXT && !isWhole;
  return (
    <span className="json-string">
      {JSON.stringify(isCut ? value.slice(0, LONG_TEXT) : value)}
      {isCut && (
        <button type="button" className="json-more" onClick={() => setWhole(true)}>
          {partWords.more(value.length - LONG_TEXT)}
        </button>
      )}
    </span>
  );
}
