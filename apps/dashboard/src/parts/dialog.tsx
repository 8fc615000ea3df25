import { Dialog as Base } from "@base-ui/react/dialog";
import type { ReactNode } from "react";
import { partWords } from "../strings/parts.ts";
import { Button } from "./button.tsx";

export interface DialogProps {
  readonly open: boolean;
  readonly onClose: () => void;
  readonly title: string;
  /** What it is about, in a sentence. */
  readonly about?: ReactNode;
  readonly children?: ReactNode;
  /** The buttons, the main one last. */
  readonly actions?: ReactNode;
  readonly wide?: boolean;
}

/** A dialog over the page: it holds the focus, Escape closes it, and the focus goes back. */
export function Dialog({ open, onClose, title, about, children, actions, wide = false }: DialogProps) {
  return (
    <Base.Root open={open} onOpenChange={(next) => !next && onClose()}>
      <Base.Portal>
        <Base.Backdrop className="scrim" />
        <Base.Popup className={wide ? "dialog dialog-wide" : "dialog"}>
          <header className="dialog-head">
            <Base.Title className="dialog-title">{title}</Base.Title>
            <Base.Close render={<Button kind="bare" icon="close" aria-label={partWords.close} />} />
          </header>
          {about !== undefined && <Base.Description className="dialog-about">{about}</Base.Description>}
          {children !== undefined && <div className="dialog-body">{children}</div>}
          {actions !== undefined && <footer className="dialog-actions">{actions}</footer>}
        </Base.Popup>
      </Base.Portal>
    </Base.Root>
  );
}
