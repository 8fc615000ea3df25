import type { TestProject } from "vitest/node";
import { chromium } from "../browser/service.ts";
import { postgres } from "../postgres/service.ts";
import { provideServices } from "./services.ts";

/** Vitest's global setup for `npm test`: the embedded PostgreSQL, and a browser for the page. */
export default function setup(project: TestProject): Promise<() => Promise<void>> {
  return provideServices(project, [postgres(), chromium()]);
}
