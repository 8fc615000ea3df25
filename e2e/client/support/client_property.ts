import { checkProperty } from "@khala/test-support/kit/property_runs";
import { type History, histories } from "./client_commands.ts";
import { type ClientStage, ClientWorld } from "./client_world.ts";

/** Lets a history happen to the clients of one person, and checks what they end up with. */
export async function checkHistory(stage: ClientStage, { anchored, commands }: History): Promise<void> {
  await using world = await ClientWorld.open(stage, anchored);
  for (const command of commands) await world.run(command);
  await world.settle();
}

/** After any history, clients hold what the server has, and never went back to an older version. */
export function checkClient(stage: ClientStage, { search = false } = {}): Promise<void> {
  const check = (history: History) => checkHistory(stage, history);
  return checkProperty({ name: "client", histories, check, runs: 6, search });
}
