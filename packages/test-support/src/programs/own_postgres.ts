// Locks a data folder, starts the embedded PostgreSQL in it, prints one line of JSON, and stays.
import { randomUUID } from "node:crypto";
import { lockDataFolder } from "../../../server/src/database/data_folder.ts";
import { startEmbeddedPostgres } from "../../../server/src/database/embedded.ts";
import { systemClock } from "../../../server/src/kit/clock.ts";

const dataDir = process.argv[2]!;
const release = lockDataFolder(dataDir);
const server = await startEmbeddedPostgres({ dataDir, clock: systemClock, newPassword: randomUUID });
console.log(JSON.stringify({ url: server.url, pid: server.pid }));
process.once("SIGTERM", async () => {
  await server.stop();
  release();
});
