import { Dialog as Base } from "@base-ui/react/dialog";
import type { ReactNode } from "react";
import { Button } from "./button.tsx";

export interface DialogProps {
  readonly open?: boolean;
  readonly onClose: () => void;
  readonly title: string;
  /** What it is about, in a sentence. */
  readonly about?: ReactNode;
  readonly children?: ReactNode;
  /** The buttons, the main one last. */
  readonly actions?: ReactNode;
}

/** A modal dialog: it traps the focus, Escape closes it, and the focus returns. */
export function Dialog({ open = true, onClose, title, about, children, actions }: DialogProps) {
  return (
    <Base.Root open={open} onOpenChange={(next) => !next && onClose()}>
      <Base.Portal>
        <Base.Backdrop className="scrim" />
        <Base.Popup className="dialog">
          <header className="dialog-head">
            <Base.Title className="dialog-title">{title}</Base.Title>
            <Base.Close render={<Button kind="bare" icon="close" aria-label="Close" />} />
          </header>
          {about !== undefined && <Base.Description className="dialog-about">{about}</Base.Description>}
          {children !== undefined && <div className="dialog-body">{children}</div>}
          {actions !== undefined && <footer className="dialog-actions">{actions}</footer>}
        </Base.Popup>
      </Base.Portal>
    </Base.Root>
  );
}
