import { Toast as Base } from "@base-ui/react/toast";
import { type ReactNode, useCallback } from "react";
import { Button } from "../controls/button.tsx";
import { Icon } from "../controls/icons.tsx";
import type { State } from "./state_badge.tsx";
import "./feedback.css";

const SHOWN_MS = 6_000;

/** Says what an action did, for a moment, at the same place on every page. */
export function useToast(): (text: string, state?: State) => void {
  const { add } = Base.useToastManager();
  return useCallback(
    (text, state = "ok") =>
      void add({ title: text, type: state, priority: state === "failed" ? "high" : "low" }),
    [add],
  );
}

/** Shows the toasts. Once, around the app. */
export function ToastProvider({ children }: { readonly children: ReactNode }) {
  return (
    <Base.Provider timeout={SHOWN_MS} limit={3}>
      {children}
      <Base.Portal>
        <Base.Viewport className="toasts">
          <Toasts />
        </Base.Viewport>
      </Base.Portal>
    </Base.Provider>
  );
}

function Toasts() {
  const { toasts } = Base.useToastManager();
  return toasts.map((toast) => {
    const state = (toast.type ?? "ok") as State;
    return (
      <Base.Root key={toast.id} toast={toast} className="toast">
        <span className={state}>
          <Icon name={state} size={16} />
        </span>
        <Base.Title render={<p />} className="toast-text" />
        <Base.Close render={<Button kind="bare" icon="close" aria-label="Dismiss" />} />
      </Base.Root>
    );
  });
}
