import {
  type RefObject,
  useCallback,
  useEffect,
  useLayoutEffect,
  useRef,
  useState,
  useSyncExternalStore,
} from "react";

/** The width of an element; 0 before layout. Renders again only when it crosses a multiple of 20 pixels. */
export function useWidth(element: RefObject<HTMLElement | null>): number {
  const [width, setWidth] = useState(0);
  useLayoutEffect(() => {
    const target = element.current;
    if (!target) return;
    const measure = () => setWidth(Math.floor(target.clientWidth / 20) * 20);
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(target);
    return () => observer.disconnect();
  }, [element]);
  return width;
}

const NARROW = "(max-width: 720px)";

function subscribeNarrow(listener: () => void): () => void {
  const list = window.matchMedia(NARROW);
  list.addEventListener("change", listener);
  return () => list.removeEventListener("change", listener);
}

/** Whether the page is as narrow as a phone. */
export function useNarrow(): boolean {
  return useSyncExternalStore(subscribeNarrow, () => window.matchMedia(NARROW).matches);
}

/** Throttles a value that changes often: a thousand updates in a second become ten renders. */
export function useThrottled<Value>(value: Value, everyMs = 100): Value {
  const [shown, setShown] = useState(value);
  const latest = useRef(value);
  const last = useRef(0);
  const isDue = useRef(false);
  latest.current = value;
  useEffect(() => {
    if (isDue.current || Object.is(shown, value)) return;
    isDue.current = true;
    const wait = Math.max(0, last.current + everyMs - performance.now());
    setTimeout(() => {
      requestAnimationFrame(() => {
        isDue.current = false;
        last.current = performance.now();
        setShown(() => latest.current);
      });
    }, wait);
  }, [value, shown, everyMs]);
  return shown;
}

/** Debounces a value: it is returned once it has not changed for this long. */
export function useDebounced<Value>(value: Value, ms: number): Value {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), ms);
    return () => clearTimeout(timer);
  }, [value, ms]);
  return settled;
}

/** Copies a text, and reports for a moment that it did. */
export function useCopy(): [copied: boolean, copy: (text: string) => void] {
  const [copied, setCopied] = useState(false);
  useEffect(() => {
    if (!copied) return;
    const timer = setTimeout(() => setCopied(false), 1500);
    return () => clearTimeout(timer);
  }, [copied]);
  const copy = useCallback((text: string) => {
    // Browsers refuse without a secure origin or a user gesture; then "Copied" is not shown.
    navigator.clipboard?.writeText(text).then(
      () => setCopied(true),
      () => setCopied(false),
    );
  }, []);
  return [copied, copy];
}
