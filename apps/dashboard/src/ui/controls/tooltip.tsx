import { Tooltip as Base } from "@base-ui/react/tooltip";
import type { ReactElement, ReactNode } from "react";

export interface TooltipProps {
  readonly text: ReactNode;
  /** One element that can have focus, such as a Button. */
  readonly children: ReactElement;
  readonly side?: "top" | "bottom" | "left" | "right";
}

/** A text for a control, on hover and on focus. Never the only place of something important. */
export function Tooltip({ text, children, side = "bottom" }: TooltipProps) {
  return (
    <Base.Root>
      <Base.Trigger render={children as ReactElement<Record<string, unknown>>} />
      <Base.Portal>
        <Base.Positioner side={side} sideOffset={6} className="tooltip-place">
          <Base.Popup className="tooltip">{text}</Base.Popup>
        </Base.Positioner>
      </Base.Portal>
    </Base.Root>
  );
}

/** Lets neighbouring tooltips open without a delay. Once, around the app. */
export const TooltipProvider = Base.Provider;
