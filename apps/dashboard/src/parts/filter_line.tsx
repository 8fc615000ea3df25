import { type KeyboardEvent, useId, useRef, useState } from "react";
import { partWords } from "../strings/parts.ts";
import { Icon } from "./icons.tsx";

/** A key that a filter line knows. */
export interface FilterKey {
  readonly name: string;
  readonly about: string;
  /** Values that are offered after the colon. */
  readonly values?: readonly string[];
}

export interface FilterLineProps {
  readonly label: string;
  readonly value: string;
  /** Called with each letter: keep it in the query string with `replace`. */
  readonly onChange: (value: string) => void;
  readonly keys?: readonly FilterKey[];
  readonly placeholder?: string;
}

/** A line of `key:value` words, with the keys offered while one types. */
export function FilterLine({ label, value, onChange, keys = [], placeholder }: FilterLineProps) {
  const input = useRef<HTMLInputElement>(null);
  const [isOpen, setOpen] = useState(false);
  const [at, setAt] = useState(0);
  const id = useId();
  const offers = isOpen ? offersFor(value, keys) : [];
  const current = offers[Math.min(at, offers.length - 1)];

  const take = (text: string) => {
    onChange(value.replace(/\S*$/, "") + text);
    setAt(0);
    input.current?.focus();
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === "Escape") {
      event.preventDefault();
      if (isOpen && offers.length > 0) setOpen(false);
      else if (value !== "") onChange("");
      else input.current?.blur();
    } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      setOpen(true);
      const step = event.key === "ArrowDown" ? 1 : -1;
      setAt((Math.min(at, offers.length - 1) + step + offers.length) % Math.max(1, offers.length));
    } else if ((event.key === "Enter" || (event.key === "Tab" && isTyping(value))) && current && isOpen) {
      event.preventDefault();
      take(current.text);
    } else setOpen(true);
  };

  return (
    <div className="filter">
      <Icon name="filter" />
      <input
        ref={input}
        type="text"
        role="combobox"
        aria-label={label}
        aria-expanded={offers.length > 0}
        aria-controls={`${id}-list`}
        aria-activedescendant={current ? `${id}-${current.text}` : undefined}
        autoComplete="off"
        spellCheck={false}
        value={value}
        placeholder={placeholder ?? partWords.filterHint}
        onChange={(event) => onChange(event.target.value)}
        onFocus={() => setOpen(true)}
        onBlur={() => setOpen(false)}
        onKeyDown={onKeyDown}
      />
      {value !== "" && (
        <button
          type="button"
          className="filter-clear"
          aria-label={partWords.clearFilter}
          onClick={() => onChange("")}
        >
          <Icon name="close" size={12} />
        </button>
      )}
      <div
        id={`${id}-list`}
        role="listbox"
        aria-label={partWords.suggestions}
        className="filter-offers"
        hidden={offers.length === 0}
      >
        {offers.map((offer) => (
          // biome-ignore lint/a11y/useFocusableInteractive: the focus stays in the input.
          // biome-ignore lint/a11y/useKeyWithClickEvents: keys are the input's.
          <div
            key={offer.text}
            id={`${id}-${offer.text}`}
            role="option"
            aria-selected={offer === current}
            onPointerDown={(event) => event.preventDefault()}
            onClick={() => take(offer.text)}
          >
            <code>{offer.text}</code>
            <span className="quiet">{offer.about}</span>
          </div>
        ))}
      </div>
    </div>
  );
}

const isTyping = (value: string) => /\S$/.test(value);

function offersFor(value: string, keys: readonly FilterKey[]) {
  const word = /\S*$/.exec(value)?.[0] ?? "";
  const [name, typed] = word.split(":", 2);
  if (typed !== undefined) {
    const values = keys.find((key) => key.name === name)?.values ?? [];
    return values
      .filter((one) => one.startsWith(typed) && one !== typed)
      .slice(0, 8)
      .map((one) => ({ text: `${name}:${one} `, about: "" }));
  }
  return keys
    .filter((key) => key.name.startsWith(word))
    .map((key) => ({ text: `${key.name}:`, about: key.about }));
}
