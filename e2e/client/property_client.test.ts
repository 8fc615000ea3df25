import { afterAll, beforeAll, test } from "vitest";
import type { History } from "./support/client_commands.ts";
import { checkClient, checkHistory } from "./support/client_property.ts";
import { ClientStage } from "./support/client_world.ts";

let stage: ClientStage;
beforeAll(async () => {
  stage = await ClientStage.open();
});
afterAll(() => stage?.[Symbol.asyncDispose]());

/** Histories that a search seldom finds. */
const RARE: readonly (History & { readonly name: string })[] = [
  {
    name: "a change that could not be stored is not missing after a restart",
    anchored: true,
    commands: [
      { do: "write", key: 0 },
      { do: "breathe" },
      { do: "storage", fault: "quota" },
      { do: "write", key: 0 },
      { do: "breathe" },
      { do: "storage", fault: "none" },
      { do: "write", key: 1 },
      { do: "breathe" },
      { do: "reopen", client: 0 },
      { do: "reopen", client: 2 },
    ],
  },
  {
    name: "a large document that was not fetched is fetched after a restart",
    anchored: true,
    commands: [
      { do: "write", key: 0 },
      { do: "breathe" },
      { do: "write_large", key: 0 },
      { do: "refuse" },
      { do: "reopen", client: 0 },
      { do: "reopen", client: 2 },
    ],
  },
  {
    name: "a purged position is listed again after a restart, also when a document was deleted",
    anchored: true,
    commands: [
      { do: "write", key: 0 },
      { do: "write", key: 1 },
      { do: "breathe" },
      { do: "refuse" },
      { do: "delete", key: 0 },
      { do: "trim" },
      { do: "reopen", client: 0 },
      { do: "reopen", client: 2 },
    ],
  },
  {
    name: "the leader tab dies while the connection is half open and its storage is corrupt",
    anchored: true,
    commands: [
      { do: "write", key: 0 },
      { do: "breathe" },
      { do: "half_open" },
      { do: "write", key: 0 },
      { do: "corrupt", which: 1 },
      { do: "kill", client: 0 },
      { do: "restart_server" },
      { do: "write", key: 1 },
    ],
  },
];

test.for(RARE)("$name", (history) => checkHistory(stage, history));

test("clients end with the server's documents through any failure of connection, server, storage, clock and tabs", () =>
  checkClient(stage));
