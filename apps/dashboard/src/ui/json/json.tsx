import { type ReactNode, useState } from "react";
import { Button } from "../controls/button.tsx";
import { Icon } from "../controls/icons.tsx";
import { countText, plural } from "../format/numbers.ts";
import { useCopy } from "../hooks.ts";
import "./json.css";

const AT_ONCE = 100;
const LONG_TEXT = 600;

export interface JsonProps {
  readonly value: unknown;
  /** How many levels are open at first. */
  readonly open?: number;
  /** For screen readers. */
  readonly label?: string;
}

/** A JSON tree that can be expanded and copied. */
export function Json({ value, open = 2, label = "JSON" }: JsonProps) {
  const [copied, copy] = useCopy();
  return (
    <div className="json mono" role="group" aria-label={label}>
      <div className="json-copy">
        <Button
          kind="bare"
          icon={copied ? "check" : "copy"}
          aria-label={copied ? "Copied" : "Copy"}
          onClick={() => copy(JSON.stringify(value, null, 2) ?? "")}
        />
      </div>
      <Node value={value} open={open} />
    </div>
  );
}

interface NodeProps<Value> {
  readonly name?: string;
  readonly value: Value;
  readonly open: number;
}

function Node({ name = "", value, open }: NodeProps<unknown>) {
  if (typeof value === "object" && value !== null) return <Branch name={name} value={value} open={open} />;
  return (
    <div className="json-line">
      <Name name={name} />
      <Leaf value={value} />
    </div>
  );
}

function Name({ name }: { readonly name: string }) {
  return name === "" ? null : <span className="json-name">{name}: </span>;
}

function Branch({ name = "", value, open }: NodeProps<object>) {
  const [isOpen, setOpen] = useState(open > 0);
  const [shown, setShown] = useState(AT_ONCE);
  const [left, right, noun] = Array.isArray(value) ? ["[", "]", "item"] : ["{", "}", "field"];
  const entries = Object.entries(value);
  if (entries.length === 0)
    return (
      <div className="json-line">
        <Name name={name} />
        {left + right}
      </div>
    );
  return (
    <div className="json-branch">
      <button type="button" className="json-toggle" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
        <Icon name="chevron" size={12} />
        <Name name={name} />
        <span className="json-size">
          {left} {plural(entries.length, noun)} {right}
        </span>
      </button>
      {isOpen && (
        <div className="json-inside">
          {entries.slice(0, shown).map(([key, inner]) => (
            <Node key={key} name={key} value={inner} open={open - 1} />
          ))}
          {entries.length > shown && (
            <More count={entries.length - shown} onClick={() => setShown(shown + 10 * AT_ONCE)} />
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
      {isCut && <More count={value.length - LONG_TEXT} onClick={() => setWhole(true)} />}
    </span>
  );
}

function More({ count, onClick }: { readonly count: number; readonly onClick: () => void }) {
  return (
    <button type="button" className="json-more" onClick={onClick}>
      {countText(count)} more
    </button>
  );
}
