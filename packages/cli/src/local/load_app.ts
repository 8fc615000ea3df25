import { existsSync } from "node:fs";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import type { App, AppDefinition } from "@khala/server";
import { EXIT, Failure } from "../failure.ts";

/** Loads the app that a file exports by default, made with `defineApp`; without a file, the demo app. */
export async function loadApp(file: string | undefined): Promise<App> {
  if (!file) return (await import("../demo/app.ts")).default;
  const path = resolve(file);
  if (!existsSync(path))
    throw new Failure(`There is no file ${path}. Name the app's file with --app.`, EXIT.usage);
  const { defineApp } = await import("@khala/server");
  let exported: { default?: unknown };
  try {
    exported = (await import(pathToFileURL(path).href)) as { default?: unknown };
  } catch (cause) {
    throw new Failure(`The app ${file} cannot be loaded: ${(cause as Error).message}`, EXIT.failed, {
      cause,
    });
  }
  const app = exported.default;
  if (isApp(app)) return app;
  if (isDefinition(app)) return defineApp(app);
  throw new Failure(`The app ${file} needs \`export default defineApp({ … })\`.`);
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
