import { type Logger, pino } from "pino";
import { paint } from "./terminal.ts";

const NAMES: Record<number, [name: string, style: Parameters<typeof paint>[0]]> = {
  10: ["trace", "dim"],
  20: ["debug", "dim"],
  30: ["info", "green"],
  40: ["warn", "yellow"],
  50: ["error", "red"],
  60: ["fatal", "red"],
};

/** The log of a server: readable lines for people, JSON for programs. Default: people read a terminal. */
export function openLog(
  level: string,
  stream: NodeJS.WriteStream & { readonly fd: number },
  forPeople: boolean = stream.isTTY,
): Logger {
  if (!forPeople) return pino({ level }, pino.destination({ fd: stream.fd, sync: true }));
  return pino({ level, base: null }, { write: (line) => stream.write(`${readable(line, stream)}\n`) });
}

/** A JSON log line in readable form: time, level, message, other fields. */
export function readable(line: string, stream: NodeJS.WriteStream): string {
  const { level, time, msg, err, ...rest } = JSON.parse(line) as Record<string, unknown>;
  const [name, style] = NAMES[level as number] ?? ["log", "dim"];
  const clock = new Date(time as number).toLocaleTimeString("en-GB");
  const details = Object.entries(rest).map(([key, value]) => `${key}=${plain(value)}`);
  if (err !== undefined) details.push(plain(typeof err === "object" ? (err as Error).stack : err));
  return [
    paint("dim", clock, stream),
    paint(style, name.padEnd(5), stream),
    String(msg ?? ""),
    paint("dim", details.join(" "), stream),
  ]
    .join(" ")
    .trimEnd();
}

function plain(value: unknown): string {
  return typeof value === "string" ? value : JSON.stringify(value);
}
