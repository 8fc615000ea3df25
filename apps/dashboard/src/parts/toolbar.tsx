import type { ReactNode } from "react";

export interface ToolbarProps {
  /** What it is for, for screen readers. */
  readonly label: string;
  readonly children: ReactNode;
  /** At the right edge. */
  readonly end?: ReactNode;
}

/** A line of controls above the thing that they act on. */
export function Toolbar({ label, children, end }: ToolbarProps) {
  return (
    <div className="toolbar" role="group" aria-label={label}>
      {children}
      {end !== undefined && <div className="toolbar-end">{end}</div>}
    </div>
  );
}
