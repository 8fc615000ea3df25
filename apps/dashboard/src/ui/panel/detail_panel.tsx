import {
  type KeyboardEvent,
  type PointerEvent,
  type ReactNode,
  useEffect,
  useLayoutEffect,
  useRef,
  useState,
} from "react";
import { Button } from "../controls/button.tsx";
import "./detail_panel.css";

const STORED_AS = "khala.panel";
const MIN_WIDTH = 300;
const STEP = 24;

/** A list at the left, the details of the selected item at the right. */
export function WithPanel({ children, panel }: { readonly children: ReactNode; readonly panel?: ReactNode }) {
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
  readonly children: ReactNode;
  /** Its name for screen readers. */
  readonly label: string;
}

/** The details of one item: resizable, closed by Escape, a sheet at phone width. The focus returns when it closes. */
export function DetailPanel({ title, onClose, children, label }: DetailPanelProps) {
  const panel = useRef<HTMLElement>(null);
  const [width, setWidth] = useState(storedWidth);
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

  // Focus returns to what opened the panel. For a row that is its table, which handles the keys.
  useLayoutEffect(() => {
    const shown = panel.current;
    const from = document.activeElement;
    const opener = from?.closest("[role=grid]") ?? from;
    return () => {
      if (shown?.contains(document.activeElement) && opener instanceof HTMLElement) opener.focus();
    };
  }, []);

  const resize = (to: number) => {
    const most = Math.max(MIN_WIDTH, window.innerWidth - 520);
    const next = Math.round(Math.max(MIN_WIDTH, Math.min(most, to)));
    setWidth(next);
    window.localStorage.setItem(STORED_AS, String(next));
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
        aria-label="Resize details"
        aria-valuenow={width}
        aria-valuemin={MIN_WIDTH}
        tabIndex={0}
        onKeyDown={onKeyDown}
        onPointerDown={(event) => event.currentTarget.setPointerCapture(event.pointerId)}
        onPointerMove={onDrag}
      />
      <header className="panel-head">
        <h2 className="panel-title">{title}</h2>
        <Button kind="bare" icon="close" aria-label="Close details" onClick={onClose} />
      </header>
      <div className="panel-body">{children}</div>
    </aside>
  );
}

function storedWidth(): number {
  const stored = Number(window.localStorage.getItem(STORED_AS));
  return Number.isFinite(stored) && stored >= MIN_WIDTH ? stored : 440;
}

/** A name and its value; a false value leaves the line out. */
export type Fact = readonly [name: string, value: ReactNode];

/** Names and values, as at the top of a detail panel. */
export function Facts({ facts }: { readonly facts: readonly (Fact | undefined | false)[] }) {
  return (
    <dl className="facts">
      {facts.map(
        (fact) =>
          fact && (
            <div key={fact[0]}>
              <dt>{fact[0]}</dt>
              <dd>{fact[1]}</dd>
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

/** A link in running text, or to an id. */
export function TextLink(props: {
  readonly href: string;
  readonly mono?: boolean;
  readonly children: ReactNode;
}) {
  return (
    <a className={props.mono ? "text-link mono" : "text-link"} href={props.href}>
      {props.children}
    </a>
  );
}
