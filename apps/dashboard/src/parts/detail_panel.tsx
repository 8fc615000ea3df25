import {
  type KeyboardEvent,
  type PointerEvent,
  type ReactNode,
  useEffect,
  useLayoutEffect,
  useRef,
  useState,
} from "react";
import { partWords } from "../strings/parts.ts";
import { Button } from "./button.tsx";
import "./detail_panel.css";

const KEPT_AS = "khala.panel";
const LEAST = 300;
const STEP = 24;

export interface WithPanelProps {
  readonly children: ReactNode;
  /** A DetailPanel, or nothing. */
  readonly panel?: ReactNode;
}

/** The list at the left, the details of what is selected at the right. */
export function WithPanel({ children, panel }: WithPanelProps) {
  return (
    <div className="with-panel">
      <div className="with-panel-main">{children}</div>
      {panel}
    </div>
  );
}

export interface DetailPanelProps {
  readonly title: ReactNode;
  readonly onClose: () => void;
  /** What can be done with the thing that is shown. */
  readonly actions?: ReactNode;
  readonly children: ReactNode;
  /** Its name for screen readers. */
  readonly label: string;
}

/** The details of one thing: as wide as the person drags it, closed by Escape, a sheet at phone width. The focus goes back. */
export function DetailPanel({ title, onClose, actions, children, label }: DetailPanelProps) {
  const panel = useRef<HTMLElement>(null);
  const [width, setWidth] = useState(keptWidth);
  const close = useRef(onClose);
  close.current = onClose;

  useEffect(() => {
    const onKey = (event: globalThis.KeyboardEvent) => {
      if (event.key !== "Escape" || event.defaultPrevented) return;
      const from = event.target instanceof Element ? event.target : undefined;
      if (from?.closest("[role=dialog], [role=combobox]")) return;
      close.current();
    };
    document.addEventListener("keydown", onKey);
    return () => document.removeEventListener("keydown", onKey);
  }, []);

  // Who was in it when it closes goes back to where they came from: of a row, to its table, which has the keys.
  useLayoutEffect(() => {
    const shown = panel.current;
    const from = document.activeElement;
    const opener = from?.closest("[role=grid]") ?? from;
    return () => {
      if (shown?.contains(document.activeElement) && opener instanceof HTMLElement) opener.focus();
    };
  }, []);

  const resize = (to: number) => {
    const most = Math.max(LEAST, window.innerWidth - 520);
    const next = Math.round(Math.max(LEAST, Math.min(most, to)));
    setWidth(next);
    window.localStorage.setItem(KEPT_AS, String(next));
  };
  const onDrag = (event: PointerEvent<HTMLDivElement>) => {
    if (!event.currentTarget.hasPointerCapture(event.pointerId)) return;
    const right = panel.current?.getBoundingClientRect().right ?? window.innerWidth;
    resize(right - event.clientX);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === "ArrowLeft") resize(width + STEP);
    else if (event.key === "ArrowRight") resize(width - STEP);
    else return;
    event.preventDefault();
  };

  return (
    <aside ref={panel} className="panel" style={{ width }} aria-label={label}>
      <div
        className="panel-divider"
        role="separator"
        aria-orientation="vertical"
        aria-label={partWords.resizePanel}
        aria-valuenow={width}
        aria-valuemin={LEAST}
        tabIndex={0}
        onKeyDown={onKeyDown}
        onPointerDown={(event) => event.currentTarget.setPointerCapture(event.pointerId)}
        onPointerMove={onDrag}
      />
      <header className="panel-head">
        <h2 className="panel-title">{title}</h2>
        {actions}
        <Button kind="bare" icon="close" aria-label={partWords.closePanel} onClick={onClose} />
      </header>
      <div className="panel-body">{children}</div>
    </aside>
  );
}

function keptWidth(): number {
  const kept = Number(window.localStorage.getItem(KEPT_AS));
  return Number.isFinite(kept) && kept >= LEAST ? kept : 440;
}

export interface Fact {
  readonly name: string;
  readonly value: ReactNode;
}

/** Names and values, as in the head of a detail panel. */
export function Facts({ facts }: { readonly facts: readonly (Fact | undefined | false)[] }) {
  return (
    <dl className="facts">
      {facts.map(
        (fact) =>
          fact && (
            <div key={fact.name}>
              <dt>{fact.name}</dt>
              <dd>{fact.value}</dd>
            </div>
          ),
      )}
    </dl>
  );
}

/** A part of a detail panel, with a heading. */
export function Section({ title, children }: { readonly title: string; readonly children: ReactNode }) {
  return (
    <section className="panel-section">
      <h3>{title}</h3>
      {children}
    </section>
  );
}
