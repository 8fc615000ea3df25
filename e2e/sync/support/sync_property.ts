import { checkProperty } from "@khala/test-support/kit/property_runs";
import { type History, histories } from "./sync_commands.ts";
import { SyncWorld } from "./sync_world.ts";

/** Lets a history happen to servers and witnesses, and checks what they end up with. */
export async function checkHistory({ servers, commands }: History, seed: number): Promise<void> {
  await using world = await SyncWorld.open(servers, seed);
  for (const command of commands) await world.run(command);
  await world.settle();
}

/** After any history, every witness holds what the events say and what a list says. */
export function checkSync({ search = false } = {}): Promise<void> {
  return checkProperty({ name: "sync", histories, check: checkHistory, runs: 2, search });
}
