import type { ButtonHTMLAttributes, ReactNode, Ref } from "react";
import { classNames } from "../format/class_names.ts";
import { Icon, type IconName } from "./icons.tsx";

export interface ButtonProps extends Omit<ButtonHTMLAttributes<HTMLButtonElement>, "children"> {
  /** `primary` once per screen; `danger` for what cannot be undone; `bare` in rows and bars. */
  readonly kind?: "primary" | "plain" | "bare" | "danger";
  readonly icon?: IconName;
  /** Without a text, set `aria-label`. */
  readonly children?: ReactNode;
  /** Shows a spinner and ignores clicks. */
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
