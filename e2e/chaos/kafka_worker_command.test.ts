import { spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { join } from "node:path";
import { testDatabase } from "@khala/test-support/postgres/test_database";
import { bareEnv } from "@khala/test-support/processes/bare_env";
import app from "@khala/test-support/programs/board_app";
import { BACKENDS, backendSettings } from "@khala/test-support/servers/backends";
import { startBoard } from "@khala/test-support/servers/board_server";
import { expect, test } from "vitest";
import { ROOT } from "../../scripts/run.ts";

const file = join(ROOT, "packages/test-support/src/programs/board_app.ts");
const command = [
  "--conditions=khala-source",
  join(ROOT, "packages/cli/src/main.ts"),
  "worker",
  "--app",
  file,
];

// How soon a worker has its partitions depends on how busy the broker is.
test.runIf(BACKENDS.includes("Kafka"))("khala worker runs the agents of an app on Kafka", async () => {
  await using own = await testDatabase();
  const settings = await backendSettings("Kafka");
  await using idle = await startBoard(
    own.url,
    { agents: app.agents },
    { ...settings, KHALA_BOARD_AGENTS: "false" },
  );
  const child = spawn(process.execPath, command, {
    env: { ...bareEnv(), DATABASE_URL: own.url, ...settings },
  });
  const ended = once(child, "close");
  const correlation_id = randomUUID();
  await idle.publish({ type: "Draft", payload: {}, correlation_id });
  expect(await idle.correlation(correlation_id, "done")).toMatchObject({ artifacts: "2" });
  child.kill("SIGTERM");
  expect((await ended)[0]).toBe(0);
});
