import { type KeyboardEvent, useId, useRef, useState } from "react";
import { Icon } from "./icons.tsx";

/** A key that a filter supports. */
export interface FilterKey {
  readonly name: string;
  readonly about: string;
  /** Values that are suggested after the colon. */
  readonly values?: readonly string[];
}

export interface FilterInputProps {
  readonly label: string;
  readonly value: string;
  /** Called with each keystroke: keep it in the query string with `replace`. */
  readonly onChange: (value: string) => void;
  readonly keys?: readonly FilterKey[];
  readonly placeholder?: string | undefined;
}

/** An input for words and `key:value` pairs, with suggestions. */
export function FilterInput({ label, value, onChange, keys = [], placeholder }: FilterInputProps) {
  const input = useRef<HTMLInputElement>(null);
  const [isOpen, setOpen] = useState(false);
  const [at, setAt] = useState(0);
  const id = useId();
  const suggestions = isOpen ? suggestionsFor(value, keys) : [];
  const current = suggestions[Math.min(at, suggestions.length - 1)];

  const take = (text: string) => {
    onChange(value.replace(/\S*$/, "") + text);
    setAt(0);
    input.current?.focus();
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === "Escape") {
      event.preventDefault();
      if (isOpen && suggestions.length > 0) setOpen(false);
      else if (value !== "") onChange("");
      else input.current?.blur();
    } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      setOpen(true);
      const step = event.key === "ArrowDown" ? 1 : -1;
      const count = suggestions.length;
      setAt((Math.min(at, count - 1) + step + count) % Math.max(1, count));
    } else if ((event.key === "Enter" || (event.key === "Tab" && /\S$/.test(value))) && current && isOpen) {
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
        aria-expanded={suggestions.length > 0}
        aria-controls={`${id}-list`}
        aria-activedescendant={current ? `${id}-${current.text}` : undefined}
        autoComplete="off"
        spellCheck={false}
        value={value}
        placeholder={placeholder ?? "Filter by words or key:value"}
        onChange={(event) => onChange(event.target.value)}
        onFocus={() => setOpen(true)}
        onBlur={() => setOpen(false)}
        onKeyDown={onKeyDown}
      />
      {value !== "" && (
        <button type="button" className="filter-clear" aria-label="Clear filter" onClick={() => onChange("")}>
          <Icon name="close" size={12} />
        </button>
      )}
      <div
        id={`${id}-list`}
        role="listbox"
        aria-label="Suggestions"
        className="filter-suggestions"
        hidden={suggestions.length === 0}
      >
        {suggestions.map((suggestion) => (
          // biome-ignore lint/a11y/useFocusableInteractive: the focus stays in the input.
          // biome-ignore lint/a11y/useKeyWithClickEvents: the input handles keys.
          <div
            key={suggestion.text}
            id={`${id}-${suggestion.text}`}
            role="option"
            aria-selected={suggestion === current}
            onPointerDown={(event) => event.preventDefault()}
            onClick={() => take(suggestion.text)}
          >
            <code>{suggestion.text}</code>
            <span className="quiet">{suggestion.about}</span>
          </div>
        ))}
      </div>
    </div>
  );
}

function suggestionsFor(value: string, keys: readonly FilterKey[]) {
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
