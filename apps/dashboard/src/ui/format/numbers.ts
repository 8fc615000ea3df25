// Made once: a format is costly to create, and a table that jumps writes hundreds of numbers in a frame.
const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const TENTHS = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });

/** A number with separators. */
export function countText(value: number): string {
  return WHOLE.format(value);
}

/** A number with its noun: "1 task", "2 tasks". */
export function plural(value: number, one: string, many = `${one}s`): string {
  return `${WHOLE.format(value)} ${value === 1 ? one : many}`;
}

/** A rate: one decimal while it is small. */
export function rateText(value: number): string {
  return (value > 0 && value < 10 ? TENTHS : WHOLE).format(value);
}

const UNITS = ["B", "KB", "MB", "GB", "TB"];

/** Bytes in the unit a person would choose. */
export function bytesText(bytes: number): string {
  let value = bytes;
  let unit = 0;
  while (value >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit++;
  }
  return `${(value < 10 && unit > 0 ? TENTHS : WHOLE).format(value)} ${UNITS[unit]}`;
}

/** A duration in one or two units. */
export function durationText(ms: number): string {
  if (ms < 1) return ms === 0 ? "0 ms" : `${ms.toFixed(2)} ms`;
  if (ms < 1000) return `${(ms < 10 ? TENTHS : WHOLE).format(ms)} ms`;
  if (ms < 60_000) return `${(ms < 10_000 ? TENTHS : WHOLE).format(ms / 1000)} s`;
  const minutes = Math.floor(ms / 60_000);
  if (minutes < 60) return `${minutes} min ${Math.round((ms % 60_000) / 1000)} s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${minutes % 60} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}
