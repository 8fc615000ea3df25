import type { EngineEvent, Turn } from "./engine.ts";

/** What a script does next: says something, or waits. */
export type Step = EngineEvent | { readonly waitMs: number };

/** Plays a turn. One that waits on its own account ends when the signal aborts. */
export type Script = (turn: Turn, signal: AbortSignal) => Iterable<Step> | AsyncIterable<Step>;
