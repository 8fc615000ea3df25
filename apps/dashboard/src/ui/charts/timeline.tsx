import { type KeyboardEvent, useRef } from "react";
import type { State } from "../feedback/state_badge.tsx";
import { classNames } from "../format/class_names.ts";
import { durationText } from "../format/numbers.ts";
import { useWidth } from "../hooks.ts";
import "./timeline.css";

export interface Bar {
  readonly id: string;
  /** For hover and screen readers. */
  readonly label: string;
  /** Milliseconds since 1970. */
  readonly start: number;
  /** Undefined while it runs. */
  readonly end?: number | undefined;
  readonly state?: State;
  /** Beside it, instead of its duration: for events without one. */
  readonly text?: string;
}

/** One row of a timeline. Repetitions, such as retries, are several bars of one lane. */
export interface Lane {
  readonly id: string;
  readonly label: string;
  /** Its level of indentation. */
  readonly depth?: number;
  readonly bars: readonly Bar[];
}

export interface TimelineProps {
  readonly label: string;
  readonly lanes: readonly Lane[];
  /** Where running bars end. */
  readonly now?: number;
  readonly selected?: string | undefined;
  /** With the id of a bar. */
  readonly onSelect?: (barId: string) => void;
}

/** A waterfall: bars placed by start and duration. Arrow keys move between lanes. */
export function Timeline({ label, lanes, now = Date.now(), selected, onSelect }: TimelineProps) {
  const frame = useRef<HTMLDivElement>(null);
  const list = useRef<HTMLUListElement>(null);
  const track = trackWidth(useWidth(frame));
  const bars = lanes.flatMap((lane) => lane.bars);
  if (bars.length === 0) return null;
  const from = bars.reduce((least, bar) => Math.min(least, bar.start), Number.POSITIVE_INFINITY);
  const to = bars.reduce((most, bar) => Math.max(most, bar.end ?? now), from + 1);
  const share = (ms: number) => `${(((ms - from) / (to - from)) * 100).toFixed(3)}%`;

  const onKeyDown = (event: KeyboardEvent) => {
    const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    if (step === 0) return;
    const buttons = [...(list.current?.querySelectorAll<HTMLButtonElement>(".bar") ?? [])];
    const at = buttons.indexOf(document.activeElement as HTMLButtonElement);
    const next = buttons[at + step];
    if (!next) return;
    event.preventDefault();
    next.focus();
    onSelect?.(next.dataset.bar ?? "");
  };

  return (
    <div ref={frame} className="timeline">
      <div className="timeline-axis" aria-hidden="true">
        <span />
        <div className="timeline-track">
          {ticks(to - from).map((ms) => (
            <span key={ms} className="tick" style={{ left: share(from + ms) }}>
              {durationText(ms)}
            </span>
          ))}
        </div>
      </div>
      <ul ref={list} aria-label={label} onKeyDown={onKeyDown}>
        {lanes.map((lane) => (
          <li
            key={lane.id}
            className={classNames("lane", lane.bars.some((bar) => bar.id === selected) && "lane-selected")}
          >
            <span className="lane-label" style={{ paddingLeft: (lane.depth ?? 0) * 12 }} title={lane.label}>
              {lane.label}
              {lane.bars.length === 1 && (
                <span className="lane-note" aria-hidden="true">
                  {textOf(lane.bars[0]!)}
                </span>
              )}
            </span>
            <div className="timeline-track">
              {lane.bars.map((bar) => {
                const length = (bar.end ?? now) - bar.start;
                const text = textOf(bar);
                const before = ((bar.start - from) / (to - from)) * track;
                const after = ((to - (bar.end ?? now)) / (to - from)) * track;
                return (
                  <button
                    key={bar.id}
                    type="button"
                    className={classNames(
                      "bar",
                      `bar-${bar.state ?? "ok"}`,
                      bar.end === undefined && "bar-open",
                    )}
                    data-bar={bar.id}
                    style={{ left: share(bar.start), width: `${((length / (to - from)) * 100).toFixed(3)}%` }}
                    title={`${bar.label} · ${text}`}
                    aria-label={`${bar.label}, ${text}`}
                    aria-pressed={onSelect ? bar.id === selected : undefined}
                    onClick={() => onSelect?.(bar.id)}
                  >
                    {lane.bars.length === 1 && (
                      <span
                        className={classNames(
                          "bar-text",
                          isTextBefore(text, before, after) && "bar-text-before",
                        )}
                        aria-hidden="true"
                      >
                        {text}
                      </span>
                    )}
                  </button>
                );
              })}
            </div>
          </li>
        ))}
      </ul>
    </div>
  );
}

/** The text beside a bar. */
function textOf({ text, start, end }: Bar): string {
  return text ?? (end === undefined ? "running" : durationText(end - start));
}

/** Four or five round ticks on a duration. */
function ticks(length: number): number[] {
  const rough = length / 4;
  const unit = 10 ** Math.floor(Math.log10(Math.max(rough, 0.001)));
  const step = [1, 2, 5, 10].map((factor) => factor * unit).find((size) => size >= rough) ?? rough;
  return Array.from({ length: Math.floor(length / step) + 1 }, (_, index) => index * step).filter(
    (ms) => ms <= length * 0.96,
  );
}

/** The average width of a character at this font size, rounded up. */
const CHARACTER = 6.2;
const GAP = 8;

/** How wide the part with the bars is, in a timeline of this width: timeline.css gives the rest to the labels. */
export function trackWidth(width: number): number {
  const inside = width - 32;
  return Math.max(0, inside - Math.max(110, inside * 0.36) - 12);
}

/** Whether a text goes before its bar, given the pixels on either side: after it where it fits, else where there is more space. */
export function isTextBefore(text: string, before: number, after: number): boolean {
  return text.length * CHARACTER + GAP > after && before > after;
}
