import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

/**
 * Returns the memory that a start needed for a moment. V8 would keep it as long as the server is idle: 37 of 170 MB
 * (bench/NOTES.md). There is no API for it but the flag.
 */
export function collectGarbage(): void {
  setFlagsFromString("--expose-gc");
  const collect: () => void = runInNewContext("gc");
  collect();
}
