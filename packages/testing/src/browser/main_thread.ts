import type { Page } from "playwright-core";

/** Something that a page's main thread did in one go: how long it took, and how much of that was work. */
export interface MainThreadTask {
  readonly wallMs: number;
  /** Time on a processor: what others on the machine do meanwhile does not count. */
  readonly cpuMs: number;
}

interface TraceEvent {
  readonly name: string;
  readonly pid: number;
  readonly tid: number;
  readonly dur?: number;
  readonly tdur?: number;
  readonly args?: { readonly name?: string };
}

/** What the main thread of the browser's pages did while the work went on, by CPU time, the longest first. One trace at a time. */
export async function mainThreadTasks(
  page: Page,
  work: () => Promise<void>,
): Promise<readonly MainThreadTask[]> {
  const browser = page.context().browser();
  if (!browser) throw new Error("The page belongs to no browser that can be traced.");
  await browser.startTracing(page, { categories: ["disabled-by-default-devtools.timeline", "toplevel"] });
  let trace: Buffer;
  try {
    await work();
  } finally {
    trace = await browser.stopTracing();
  }
  const { traceEvents } = JSON.parse(trace.toString("utf8")) as { traceEvents: readonly TraceEvent[] };
  const threadOf = ({ pid, tid }: TraceEvent) => `${pid}:${tid}`;
  const isMain = ({ name, args }: TraceEvent) => name === "thread_name" && args?.name === "CrRendererMain";
  const main = new Set(traceEvents.filter(isMain).map(threadOf));
  return traceEvents
    .filter((event) => event.name === "RunTask" && main.has(threadOf(event)))
    .map(({ dur = 0, tdur = 0 }) => ({ wallMs: dur / 1_000, cpuMs: tdur / 1_000 }))
    .sort((a, b) => b.cpuMs - a.cpuMs);
}
