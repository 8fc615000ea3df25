import type { ReactNode } from "react";
import type { ErrorInfo } from "../../data/fetch.ts";
import { Failure } from "../feedback/notices.tsx";
import { Button } from "./button.tsx";
import { Dialog } from "./dialog.tsx";
import type { IconName } from "./icons.tsx";

export interface ConfirmProps {
  readonly open?: boolean;
  /** A question. */
  readonly title: string;
  /** What happens, and whether it can be undone. */
  readonly about: ReactNode;
  /** The verb of the question. */
  readonly action: string;
  readonly icon?: IconName;
  readonly cancel?: string;
  readonly busy?: boolean;
  readonly error?: ErrorInfo | null | undefined;
  readonly onConfirm: () => void;
  readonly onClose: () => void;
  readonly children?: ReactNode;
}

/** Asks before something is done that cannot simply be undone. */
export function Confirm({
  title,
  about,
  action,
  cancel = "Cancel",
  children,
  error,
  ...props
}: ConfirmProps) {
  const { open = true, icon, busy = false, onConfirm, onClose } = props;
  return (
    <Dialog
      open={open}
      onClose={onClose}
      title={title}
      about={about}
      actions={
        <>
          <Button onClick={onClose}>{cancel}</Button>
          <Button kind="danger" busy={busy} onClick={onConfirm} {...(icon && { icon })}>
            {action}
          </Button>
        </>
      }
    >
      {children}
      {error && <Failure error={error} inline />}
    </Dialog>
  );
}
