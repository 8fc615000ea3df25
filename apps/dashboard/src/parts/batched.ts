import { useEffect, useRef, useState } from "react";

/**
 * A value that changes often, shown at most once in `everyMs` and together with the other changes of a frame. A thousand
 * updates in a second become ten renders.
 */
export function useBatched<Value>(value: Value, everyMs = 100): Value {
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
