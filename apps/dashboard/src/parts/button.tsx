import type { ButtonHTMLAttributes, ReactNode, Ref } from "react";
import { classNames } from "./class_names.ts";
import { Icon, type IconName } from "./icons.tsx";

export interface ButtonProps extends Omit<ButtonHTMLAttributes<HTMLButtonElement>, "children"> {
  /** `primary` once per screen; `danger` for what cannot be taken back; `bare` in rows and bars. */
  readonly kind?: "primary" | "plain" | "bare" | "danger";
  readonly icon?: IconName;
  /** Without a text, `aria-label` says what it does. */
  readonly children?: ReactNode;
  /** Something is under way: it is shown, and a second click does nothing. */
  readonly busy?: boolean;
  readonly ref?: Ref<HTMLButtonElement>;
}

/** A button, as high as a row. */
export function Button({ kind = "plain", icon, children, busy = false, className, ...rest }: ButtonProps) {
  return (
    <button
      type="button"
      {...rest}
      className={classNames("button", `button-${kind}`, children === undefined && "button-icon", className)}
      disabled={rest.disabled || busy}
      aria-busy={busy || undefined}
    >
      {busy ? <Icon name="working" /> : icon && <Icon name={icon} />}
      {children !== undefined && <span>{children}</span>}
    </button>
  );
}
