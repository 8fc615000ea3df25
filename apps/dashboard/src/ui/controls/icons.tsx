import type { ReactNode } from "react";

const PATHS = {
  home: <path d="M2.5 7 8 2.5 13.5 7v6a.5.5 0 0 1-.5.5H9.75V9.5h-3.5v4H3a.5.5 0 0 1-.5-.5z" />,
  sync: <path d="M13 6A5.2 5.2 0 0 0 3.6 4.9M3.2 2.5v2.7h2.7M3 10a5.2 5.2 0 0 0 9.4 1.1m.4 2.4v-2.7h-2.7" />,
  conversations: (
    <path d="M2.5 4a1 1 0 0 1 1-1h9a1 1 0 0 1 1 1v6.5a1 1 0 0 1-1 1H7L4 14v-2.5h-.5a1 1 0 0 1-1-1z" />
  ),
  blackboard: (
    <path d="M2.5 3.5a1 1 0 0 1 1-1h2.5a1 1 0 0 1 1 1V6a1 1 0 0 1-1 1H3.5a1 1 0 0 1-1-1zM9 10a1 1 0 0 1 1-1h2.5a1 1 0 0 1 1 1v2.5a1 1 0 0 1-1 1H10a1 1 0 0 1-1-1zM7 4.75h3.25a1 1 0 0 1 1 1V9" />
  ),
  operations: <path d="M1.5 8.5H4l2-5.5 3.5 10.5L11.5 8.5h3" />,
  docs: <path d="M3 3.5a1 1 0 0 1 1-1h8.5v11H4a1 1 0 0 1-1-1zm0 8.5a1 1 0 0 1 1-1h8.5M6 5.5h4" />,
  search: <path d="M7 11.5a4.5 4.5 0 1 0 0-9 4.5 4.5 0 0 0 0 9m3.3-1.2 3.2 3.2" />,
  close: <path d="m4 4 8 8m0-8-8 8" />,
  copy: (
    <path d="M5.5 5.5v-2a1 1 0 0 1 1-1h6a1 1 0 0 1 1 1v6a1 1 0 0 1-1 1h-2m-7-5h6a1 1 0 0 1 1 1v6a1 1 0 0 1-1 1h-6a1 1 0 0 1-1-1v-6a1 1 0 0 1 1-1" />
  ),
  check: <path d="m3.5 8.5 3 3 6-7" />,
  chevron: <path d="m6 4 4 4-4 4" />,
  arrow: <path d="M2.5 8h10.5m-3.5-3.5L13 8l-3.5 3.5" />,
  up: <path d="M8 13V3m-3.5 3.5L8 3l3.5 3.5" />,
  out: <path d="M6 3.5H3.5v9h9V10M9 3h4v4m0-4L7.5 8.5" />,
  pause: <path d="M5.5 3.5v9m5-9v9" />,
  play: <path d="m5 3.5 7.5 4.5L5 12.5z" />,
  retry: <path d="M13 8a5 5 0 1 1-1.6-3.7L13 5.8m0-3.3v3.3H9.7" />,
  sun: (
    <path d="M8 10.5a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5M8 1.5v1.2m0 10.6v1.2M1.5 8h1.2m10.6 0h1.2M3.4 3.4l.9.9m7.4 7.4.9.9m0-9.2-.9.9m-7.4 7.4-.9.9" />
  ),
  moon: <path d="M13 9.6A5.6 5.6 0 0 1 6.4 3a5.5 5.5 0 1 0 6.6 6.6" />,
  screen: <path d="M2.5 3.5h11v7h-11zM6 13.5h4m-2-3v3" />,
  key: <path d="M9.5 9.5a3.5 3.5 0 1 0-3-3L2.5 10.5v3h3v-2h2zM10.7 5.3h.01" />,
  ok: <path d="M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12M5.3 8.2l1.9 1.9 3.6-4.1" />,
  working: <path d="M8 2a6 6 0 1 1-6 6" />,
  waiting: <path d="M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12M8 4.8V8l2.1 1.6" />,
  failed: <path d="M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12M8 4.8v3.7m0 2.3v.1" />,
  lock: <path d="M3.5 7.5h9v6h-9zm2-2.2a2.5 2.5 0 0 1 5 0v2.2h-5z" />,
  filter: <path d="M2.5 4h11M4.5 8h7m-5 4h3" />,
  plus: <path d="M8 3v10M3 8h10" />,
  stop: <path d="M4 4h8v8H4z" />,
  trash: <path d="M3 4.5h10M6.5 4.5v-2h3v2m-5 0 .5 9h6l.5-9" />,
  link: (
    <path d="m6.8 9.2 2.4-2.4M7.5 4.6l1.4-1.4a2.8 2.8 0 0 1 4 4l-1.4 1.4m-3 2.8-1.4 1.4a2.8 2.8 0 0 1-4-4l1.4-1.4" />
  ),
  edit: <path d="m10.5 3.5 2 2-7 7H3.5v-2z" />,
  attach: (
    <path d="m12.5 7.5-4.7 4.7a2.9 2.9 0 0 1-4.1-4.1l5.2-5.2a1.9 1.9 0 0 1 2.7 2.7l-5.1 5.1a.9.9 0 0 1-1.3-1.3l4.6-4.6" />
  ),
  file: <path d="M4 2.5h5l3 3v8H4zM9 2.5v3h3" />,
  phone: <path d="M4.5 2.5h7v11h-7zM7.3 11.5h1.4" />,
} satisfies Record<string, ReactNode>;

/** An icon of the set. */
export type IconName = keyof typeof PATHS;

/** A line icon in the colour of the text. It is hidden from screen readers: put a word beside it. */
export function Icon({ name, size = 16 }: { readonly name: IconName; readonly size?: number }) {
  return (
    <svg
      className={name === "working" ? "icon icon-working" : "icon"}
      viewBox="0 0 16 16"
      width={size}
      height={size}
      fill="none"
      stroke="currentColor"
      strokeWidth="1.4"
      strokeLinecap="round"
      strokeLinejoin="round"
      aria-hidden="true"
    >
      {PATHS[name]}
    </svg>
  );
}
