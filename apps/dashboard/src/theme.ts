import { useSyncExternalStore } from "react";

/** The theme that the user chose. */
export type ThemeChoice = "system" | "light" | "dark";

const STORED_AS = "khala.theme";
const ORDER: readonly ThemeChoice[] = ["system", "light", "dark"];
const listeners = new Set<() => void>();
const prefersDark = () => window.matchMedia("(prefers-color-scheme: dark)");

function choice(): ThemeChoice {
  const stored = window.localStorage.getItem(STORED_AS);
  return ORDER.find((one) => one === stored) ?? "system";
}

function apply(): void {
  const chosen = choice();
  const dark = chosen === "dark" || (chosen === "system" && prefersDark().matches);
  document.documentElement.dataset.theme = dark ? "dark" : "light";
}

/** Applies the theme, and follows the system's. */
export function startTheme(): void {
  apply();
  prefersDark().addEventListener("change", apply);
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function next(): void {
  window.localStorage.setItem(STORED_AS, ORDER[(ORDER.indexOf(choice()) + 1) % ORDER.length]!);
  apply();
  for (const listener of listeners) listener();
}

/** The chosen theme, and a function that switches to the next. */
export function useTheme(): [ThemeChoice, () => void] {
  return [useSyncExternalStore(subscribe, choice), next];
}
