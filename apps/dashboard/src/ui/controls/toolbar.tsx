import type { InputHTMLAttributes, ReactNode } from "react";
import { Icon } from "./icons.tsx";

export interface ToolbarProps {
  /** For screen readers. */
  readonly label: string;
  readonly children: ReactNode;
  /** At the right edge. */
  readonly end?: ReactNode;
}

/** A row of controls above the thing that they act on. */
export function Toolbar({ label, children, end }: ToolbarProps) {
  return (
    <div className="toolbar" role="group" aria-label={label}>
      {children}
      {end !== undefined && <div className="toolbar-end">{end}</div>}
    </div>
  );
}

export interface SearchInputProps extends Omit<InputHTMLAttributes<HTMLInputElement>, "onChange"> {
  readonly label: string;
  readonly onChange: (value: string) => void;
}

/** A search box for a toolbar. */
export function SearchInput({ label, onChange, ...rest }: SearchInputProps) {
  return (
    <div className="filter search">
      <Icon name="search" />
      <input
        {...rest}
        type="search"
        aria-label={label}
        autoComplete="off"
        spellCheck={false}
        onChange={(event) => onChange(event.target.value)}
      />
    </div>
  );
}
