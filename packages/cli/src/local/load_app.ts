import { existsSync } from "node:fs";
import { relative, resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import type { App, AppDefinition } from "@khala/server";
import { EXIT, Failure } from "../failure.ts";

/** Loads the app that a file exports by default, made with `defineApp`; without a file, the demo app. */
export async function loadApp(file: string | undefined): Promise<App> {
  if (!file) return (await import("../demo/app.ts")).default;
  const path = resolve(file);
  if (!existsSync(path))
    throw new Failure(`The file ${path} does not exist. Name the app's file with --app.`, EXIT.usage);
  const { defineApp } = await import("@khala/server");
  let exported: { default?: unknown };
  try {
    exported = (await import(pathToFileURL(path).href)) as { default?: unknown };
  } catch (cause) {
    const { message, name, stack = "" } = cause as Error;
    const text = [`The app ${file} cannot be loaded: ${message}`, ...placeOf(name, stack)].join("\n  ");
    throw new Failure(text, EXIT.failed, { cause });
  }
  const app = exported.default;
  if (isApp(app)) return app;
  if (isDefinition(app)) return defineApp(app);
  throw new Failure(`The app ${file} needs \`export default defineApp({ … })\`.`);
}

/** Where in the app's code an error comes from: lines that follow its message. None if the stack does not say it. */
function placeOf(name: string, stack: string): string[] {
  // Node puts the place of a syntax error, the source line and a caret before the error itself.
  const [place, ...source] = stack.slice(0, Math.max(0, stack.search(`(^|\n)${name}\\b`))).split("\n");
  if (place) return [shortened(place), ...source.filter((line) => line.trim() !== "")];
  const frames = stack.match(/file:\/\/[^\s)]+/g) ?? [];
  const frame = frames.find((url) => !url.includes("/node_modules/") && !url.startsWith(SERVER));
  return frame ? [`at ${shortened(frame)}`] : [];
}

/** Where the frames of `defineApp` and its kind are, in the repository. */
const SERVER = new URL("./", import.meta.resolve("@khala/server")).href;

function shortened(place: string): string {
  return relative("", place.startsWith("file:") ? fileURLToPath(place) : place);
}

function isApp(value: unknown): value is App {
  return isObject(value) && "models" in value && "streams" in value;
}

/** The fields of an app definition, which has at least one of them. */
const PARTS: readonly (keyof AppDefinition)[] = ["models", "engine", "agents", "schemas", "schedules"];

function isDefinition(value: unknown): value is AppDefinition {
  return isObject(value) && PARTS.some((part) => part in value);
}

function isObject(value: unknown): value is object {
  return typeof value === "object" && value !== null;
}
